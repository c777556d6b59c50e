//! Nodes that are namespaces of this machine: each has its own name, links and /sys. Bridges in one more
//! namespace connect them.

use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::namespace::{Process, can_be_made};
use super::poll_until;
use super::slow_cable::SlowCable;

pub struct Nodes {
    hub: Process,
    nodes: Vec<Process>,
    _room: Room,
}

/// The most nodes of all tests at a time. With many more, a healthy node has no processor for longer than others wait
/// for it.
const MOST: usize = 96;

static IN_USE: Mutex<usize> = Mutex::new(0);
static HAS_ROOM: Condvar = Condvar::new();

/// The room for some nodes.
struct Room(usize);

impl Room {
    /// Waits until other tests leave room for these nodes.
    fn wait_for(nodes: usize) -> Room {
        let is_full = |in_use: &mut usize| *in_use > 0 && *in_use + nodes > MOST;
        *HAS_ROOM.wait_while(IN_USE.lock().unwrap(), is_full).unwrap() += nodes;
        Room(nodes)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *IN_USE.lock().unwrap() -= self.0;
        HAS_ROOM.notify_all();
    }
}

impl Nodes {
    /// Returns nodes named `node0` and so on, with this many interfaces, named `eth0` and so on. Interfaces
    /// with the same name are on one network, and have the addresses of [`address`].
    pub fn new(nodes: usize, interfaces: usize) -> Nodes {
        let room = Room::wait_for(nodes);
        let hub = Process::of_links();
        let bridges = (0..interfaces).flat_map(|interface| {
            let bridge = format!("net{interface}");
            [format!("link add {bridge} type bridge"), format!("link set {bridge} up")]
        });
        hub.ip(&bridges.collect::<Vec<_>>());
        let started = (0..nodes).map(|node| start(&format!("node{node}"))).collect();
        let made = Nodes { hub, nodes: started, _room: room };
        for node in 0..nodes {
            (0..interfaces).for_each(|interface| made.connect(node, interface));
            let limits: Vec<String> = (0..interfaces).map(limit).collect();
            if !made.nodes[node].tc(&limits) {
                eprintln!("this kernel does not know tbf: the links are as fast as the processor");
            }
        }
        for node in 0..nodes {
            (0..interfaces).for_each(|interface| made.await_carrier(node, interface, true));
        }
        made
    }

    /// Does the same as [`Nodes::new`]; if such nodes cannot be created here, prints that and returns `None`.
    pub fn if_possible(nodes: usize, interfaces: usize) -> Option<Nodes> {
        can_be_made().then(|| Nodes::new(nodes, interfaces))
    }

    fn connect(&self, node: usize, interface: usize) {
        let (pid, end) = (self.nodes[node].pid(), end(node, interface));
        self.hub.ip(&[
            format!("link add {end} type veth peer name eth{interface} netns {pid}"),
            format!("link set {end} addrgenmode none master net{interface} up"),
        ]);
        self.ip(node, &format!("link set eth{interface} addrgenmode none up"));
        self.ip(node, &format!("addr add {}/24 dev eth{interface}", address(node, interface)));
    }

    /// Runs an ip(8) command on a node.
    #[track_caller]
    pub fn ip(&self, node: usize, line: &str) {
        self.nodes[node].ip(&[line.to_owned()]);
    }

    /// Passes rules to nft(8) on a node.
    #[track_caller]
    pub fn nft(&self, node: usize, rules: &str) {
        self.nodes[node].nft(rules);
    }

    /// Makes the network drop the packets that leave a node through an interface and match this nft(8)
    /// expression, until the nodes vanish.
    #[track_caller]
    pub fn drop_from(&self, node: usize, interface: usize, matching: &str) {
        let end = end(node, interface);
        self.hub.nft(&format!(
            "table netdev {end} {{ chain in {{ type filter hook ingress device {end} priority 0; {matching} drop; }}\n }}"
        ));
    }

    /// Removes an interface's carrier or restores it: sets the other end of its cable down or up.
    pub fn set_carrier(&self, node: usize, interface: usize, is_there: bool) {
        let state = if is_there { "up" } else { "down" };
        self.hub.ip(&[format!("link set {} {state}", end(node, interface))]);
    }

    /// Waits until the kernel reports the interface's new carrier state, which takes some time after the
    /// other end was set down or up.
    pub fn await_carrier(&self, node: usize, interface: usize, is_there: bool) {
        poll_until("the interface knows whether it has a carrier", || {
            let mut command = self.nodes[node].command(&["--net"], "ip");
            let shown = command.args(["-o", "link", "show"]).arg(format!("eth{interface}")).output().unwrap();
            (String::from_utf8_lossy(&shown.stdout).contains(" state UP ") == is_there).then_some(())
        });
    }

    /// Disconnects an interface from its network. The link stays up.
    pub fn cut_off(&self, node: usize, interface: usize) {
        self.hub.ip(&[format!("link set {} nomaster", end(node, interface))]);
    }

    /// Replaces an interface's cable with one that delays each frame by this time.
    pub fn delay(&self, node: usize, interface: usize, delay: Duration) -> SlowCable {
        let (end, own) = (end(node, interface), format!("eth{interface}"));
        self.ip(node, &format!("link del {own}"));
        let ends = [(self.hub.pid(), end.as_str()), (self.nodes[node].pid(), own.as_str())];
        let cable = SlowCable::new(ends, delay);
        // The queue holds all frames that are in flight while the forwarder has no processor.
        self.hub.ip(&[format!("link set {end} addrgenmode none txqueuelen 20000 master net{interface} up")]);
        self.ip(node, &format!("link set {own} addrgenmode none txqueuelen 20000 up"));
        self.ip(node, &format!("addr add {}/24 dev {own}", address(node, interface)));
        cable
    }

    /// Reconnects an interface to its network.
    pub fn put_back(&self, node: usize, interface: usize) {
        self.hub.ip(&[format!("link set {} master net{interface}", end(node, interface))]);
    }

    /// Returns a command that runs a program on a node.
    pub fn on(&self, node: usize, program: &Path) -> Command {
        self.nodes[node].command(&["--net", "--mount", "--uts"], program)
    }
}

/// Returns the tc(8) command that gives an interface a rate. Nodes measure for a time: without a limit, each measurement
/// would take whole processors, and tell how busy they are. The queue holds more than all sockets, because a packet that is
/// dropped here would be a lost one in a verdict.
pub fn limit(interface: usize) -> String {
    format!("qdisc add dev eth{interface} root tbf rate 100mbit burst 256kb limit 64mb")
}

/// Returns the name of the other end of an interface's cable.
fn end(node: usize, interface: usize) -> String {
    format!("n{node}e{interface}")
}

/// Returns an interface's address: `10.78.1.3` for node 2 on `eth1`.
pub fn address(node: usize, interface: usize) -> String {
    format!("10.78.{interface}.{}", node + 1)
}

fn start(name: &str) -> Process {
    let script =
        "mount -t sysfs sysfs /sys && hostname \"$0\" && ip link set lo up && echo ready && exec cat";
    let unshare = ["--net", "--mount", "--uts", "--", "sh", "-c", script, name];
    Process::start(Command::new("unshare").args(unshare))
}
