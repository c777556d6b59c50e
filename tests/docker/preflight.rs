//! Jobs of containers, some of which the network cuts off: the preflight over TCP names them.

use std::fs;

use crate::support::docker::{Container, Ended, Engine, Network, engine};
use crate::support::poll_until;

const TOKEN: &str = "RDMA_INIT_TOKEN=a secret of all nodes";

/// A job of several containers. The first one has this address.
struct Job {
    nodes: u32,
    zero: String,
}

impl Job {
    /// Returns the `docker` options for a node with this address.
    fn options(&self, node: u32, network: &Network, address: &str) -> Vec<String> {
        let name = format!("node{node}");
        let nodes = format!("RDMA_INIT_PREFLIGHT_NODES={}", self.nodes);
        let own = format!("RDMA_INIT_PREFLIGHT_NODE={node}");
        let meet = format!("RDMA_INIT_PREFLIGHT_MEET={}", self.zero);
        let words = ["--hostname", &name, "--network", &network.name, "--ip", address];
        // The machine may have HCAs, which the containers do not get.
        let variables = [TOKEN, &nodes, &own, &meet, "NCCL_IB_DISABLE=1", "RDMA_INIT_LOG_LEVEL=debug"];
        let variables = variables.into_iter().flat_map(|variable| ["--env", variable]);
        words.into_iter().chain(variables).map(str::to_owned).collect()
    }
}

const STEP: &[&str] = &["/rdma-init", "preflight"];

/// Makes a container with these options wait, before it becomes rdma-init, until [`go`]: while another node waits, the
/// engine may take longer to start it than that node waits.
fn hold<'e>(engine: &'e Engine, mut options: Vec<String>, arguments: &str) -> Container<'e> {
    options.extend(["--entrypoint", "sh"].map(str::to_owned));
    let script = format!("echo held; until test -e /go; do sleep 0.1; done; exec /rdma-init {arguments}");
    let container = engine.start(options, &["-c", &script]);
    let is_held = || container.docker(["logs"], &[]).stdout.contains("held").then_some(());
    poll_until("the container is held", is_held);
    container
}

fn go(container: &Container) {
    fs::write(format!("/proc/{}/root/go", container.inspect("{{.State.Pid}}")), "").unwrap();
}

#[track_caller]
fn wait_for(container: &Container, text: &str) {
    poll_until(text, || container.docker(["logs"], &[]).stderr.contains(text).then_some(()));
}

/// Expects that the verdict names this node as faulty, and none of the others.
#[track_caller]
fn accuses(ended: Ended, node: u32) {
    let ended = ended.expect_code(1);
    let is_said = |line: &&str| line.contains("FAILED  ") || line.contains("preflight failed");
    let verdict: String = ended.stdout.lines().filter(is_said).collect();
    let is_named = |other: &u32| verdict.contains(&format!("node{other}"));
    assert_eq!((0..9).filter(is_named).collect::<Vec<u32>>(), [node], "{ended:#?}");
}

#[test]
fn a_container_that_is_cut_off_from_the_start_keeps_all_commands_from_their_start() {
    let Some(engine) = engine() else { return };
    let (front, elsewhere) = (engine.network(), &engine.rails()[0]);
    let zero = front.address().to_string();
    let job = Job { nodes: 3, zero: zero.clone() };
    let start = |node: u32, network: &Network, address: &str| {
        let mut options = job.options(node, network, address);
        options.extend(["--env", "RDMA_INIT_PREFLIGHT=enforce", "--env"].map(str::to_owned));
        options.push("RDMA_INIT_PREFLIGHT_WAIT=20s".to_owned());
        hold(engine, options, "-- sh -c 'echo started'")
    };
    let there = [start(0, front, &zero), start(1, front, &front.address().to_string())];
    let cut_off = start(2, elsewhere, &elsewhere.address().to_string());
    there.iter().chain([&cut_off]).for_each(go);
    for container in there {
        let ended = container.wait().expect_code(121).expect_stdout("held\n");
        ended.expect_line(["refusing to start", "preflight = \"enforce\"", "node 2 did not join within 20s"]);
    }
    cut_off
        .wait()
        .expect_code(121)
        .expect_stdout("held\n")
        .expect_line(["refusing to start", "this node did not reach node 0"]);
}

#[test]
fn a_container_that_is_cut_off_in_the_middle_is_named() {
    let Some(engine) = engine() else { return };
    let front = engine.network();
    let zero = front.address().to_string();
    let job = Job { nodes: 4, zero: zero.clone() };
    let start = |node: u32, address: &str| engine.start(job.options(node, front, address), STEP);
    let another = || front.address().to_string();
    let (first, one, three) = (start(0, &zero), start(1, &another()), start(3, &another()));
    let two = hold(engine, job.options(2, front, &another()), "preflight");
    for node in ["node1", "node3"] {
        wait_for(&first, &format!("{node} has joined"));
    }
    for container in [&first, &one, &three] {
        container.limit_rate();
    }
    // This node keeps the others from finishing: all of its processes stop, not PID 1 alone.
    // runc gives up if its processes do not freeze at once.
    poll_until("the container is paused", || (three.docker(["pause"], &[]).code == Some(0)).then_some(()));
    go(&two);
    wait_for(&first, "the rounds have begun");
    one.cut_off();
    three.docker(["unpause"], &[]).expect_code(0);
    for container in [first, two, three] {
        accuses(container.wait(), 1);
    }
    one.wait().expect_code(1).expect_line(["node 0", "so there is no verdict"]);
}

/// The image has rdma-init as its ENTRYPOINT, which withholds the token from every other program.
#[test]
fn the_token_reaches_a_preflight_that_is_the_command() {
    let Some(engine) = engine() else { return };
    let front = engine.network();
    let zero = front.address().to_string();
    let job = Job { nodes: 2, zero: zero.clone() };
    let start =
        |node: u32, address: &str, command: &[&str]| engine.start(job.options(node, front, address), command);
    let one = front.address().to_string();
    for node in [start(0, &zero, STEP), start(1, &one, &["/rdma-init", "--", "/rdma-init", "preflight"])] {
        let ended = node.wait().expect_code(0);
        assert!(ended.stdout.contains("passed"), "{ended:#?}");
        assert!(!ended.stderr.contains("accepts any process as a node"), "{ended:#?}");
    }
    let behind_a_shell = start(1, &one, &["sh", "-c", "env; /rdma-init preflight"]);
    let ended = behind_a_shell.wait().expect_code(1);
    assert!(!ended.stdout.contains("a secret of all nodes"), "{ended:#?}");
    ended.expect_line(["RDMA_INIT_TOKEN is not set here", "docker run IMAGE /rdma-init preflight"]);
}
