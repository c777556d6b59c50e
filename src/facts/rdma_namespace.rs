//! Whether the kernel keeps each RDMA device in one network namespace, as rdma-system(8) shows it. If it
//! does, a container may have the uverbs node of a device that it cannot use.

use netlink_packet_core::{NetlinkBuffer, NlasIterator};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::natural::sort;
use super::netlink;
use super::rdma::Hca;
use super::reader::Reader;

/// Which network namespaces can see an RDMA device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All namespaces; this is the kernel's default.
    Shared,
    /// Only the namespace that the device was moved to.
    Exclusive,
}

/// The request `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET)` of `rdma/rdma_netlink.h`.
const SYS_GET: u16 = (5 << 10) | 6;

/// `RDMA_NLDEV_SYS_ATTR_NETNS_MODE`: a byte, 0 for exclusive (`nldev_sys_get_doit` in
/// `drivers/infiniband/core/nldev.c`).
const NETNS_MODE: u16 = 66;

const NODES: &str = "/dev/infiniband";

/// The most entries of this directory to use. The kernel has at most 1024 uverbs nodes
/// (`IB_UVERBS_MAX_DEVICES` in `drivers/infiniband/core/uverbs_main.c`).
const MOST_NODES: usize = 2048;

/// In bytes: the answer contains about ten attributes of a few bytes each.
const BUFFER: usize = 4096;

/// Asks the kernel for the mode. It answers any user in any namespace.
///
/// # Errors
/// The socket's error: a kernel before 5.2 has no modes, and a sandbox may refuse the socket.
pub(crate) fn system_mode() -> Result<Mode, Errno> {
    let socket = netlink::open(SockProtocol::NetlinkRDMA)?;
    netlink::ask(&socket, SYS_GET, 0, 0, &[])?;
    mode(netlink::receive(&socket, &mut [0; BUFFER])?).ok_or(Errno::EBADMSG)
}

/// Returns the mode in the kernel's answer; `None` if this is not that answer.
fn mode(received: &[u8]) -> Option<Mode> {
    let packet = NetlinkBuffer::new_checked(received).ok()?;
    if packet.message_type() != SYS_GET {
        return None;
    }
    let mut attributes = NlasIterator::new(packet.payload()).filter_map(Result::ok);
    let attribute = attributes.find(|attribute| attribute.kind() == NETNS_MODE)?;
    Some(match attribute.value().first()? {
        0 => Mode::Exclusive,
        _ => Mode::Shared,
    })
}

/// The uverbs nodes whose devices the kernel shows in no directory: at least one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodesAlone {
    pub nodes: Vec<String>,
    /// Whether their devices are in another namespace, as far as is known.
    pub are_elsewhere: bool,
}

/// Returns the uverbs nodes that belong to none of these devices, in natural order.
pub(crate) fn nodes_alone(
    reader: &Reader,
    devices: &[Hca],
    ask: fn() -> Result<Mode, Errno>,
) -> Option<NodesAlone> {
    let mut names = Vec::new();
    match devices {
        [] => names = reader.names(NODES),
        _ => reader.each_name_if_listable(NODES, MOST_NODES, |name| names.push(name.to_owned())),
    }
    let is_shown = |node: &String| {
        devices.iter().filter_map(|hca| hca.uverbs.as_ref()).any(|uverbs| uverbs.name == *node)
    };
    let mut nodes: Vec<String> =
        names.into_iter().filter(|name| name.starts_with("uverbs") && !is_shown(name)).collect();
    if nodes.is_empty() {
        return None;
    }
    sort(&mut nodes);
    nodes.truncate(MOST_NODES);
    // Without the directory, /sys is hidden, so the device would not be visible in either mode.
    let are_elsewhere = super::rdma::may_be_there(reader) && ask() == Ok(Mode::Exclusive);
    Some(NodesAlone { nodes, are_elsewhere })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::rdma::Uverbs;

    /// Returns an answer of Linux 6.1 with these one-byte attributes.
    fn answer(kind: u16, attributes: &[(u16, u8)]) -> Vec<u8> {
        let mut message = Vec::new();
        for (attribute, value) in attributes {
            message.extend(5u16.to_ne_bytes());
            message.extend(attribute.to_ne_bytes());
            message.extend([*value, 0, 0, 0]);
        }
        let mut bytes = Vec::new();
        bytes.extend((16 + message.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(message);
        bytes
    }

    #[test]
    fn the_mode_is_an_attribute_of_the_answer() {
        assert_eq!(mode(&answer(SYS_GET, &[(NETNS_MODE, 0)])), Some(Mode::Exclusive));
        assert_eq!(mode(&answer(SYS_GET, &[(88, 0), (NETNS_MODE, 1)])), Some(Mode::Shared));
        // A kernel without the mode, an error, truncated answers, and an empty one.
        assert_eq!(mode(&answer(SYS_GET, &[(88, 0)])), None);
        assert_eq!(mode(&answer(2, &[(NETNS_MODE, 0)])), None);
        let whole = answer(SYS_GET, &[(NETNS_MODE, 0)]);
        for length in 0..whole.len() {
            let _ = mode(&whole[..length]);
        }
        assert_eq!(mode(&[]), None);
    }

    #[test]
    fn a_node_without_a_device_is_told_apart() {
        let root = FakeRoot::new();
        let found = |ask| nodes_alone(&root.reader(), &[], ask);
        let alone = |are_elsewhere| Some(NodesAlone { nodes: vec!["uverbs3".to_owned()], are_elsewhere });
        let (exclusive, shared): (fn() -> _, fn() -> _) = (|| Ok(Mode::Exclusive), || Ok(Mode::Shared));
        assert_eq!(found(exclusive), None);
        root.file("dev/infiniband/uverbs3", "");
        assert_eq!(found(exclusive), alone(false), "/sys is hidden");
        root.folder("sys/class/infiniband");
        assert_eq!(found(exclusive), alone(true));
        assert_eq!(found(shared), alone(false));
        assert_eq!(found(|| Err(Errno::EPROTONOSUPPORT)), alone(false));
    }

    #[test]
    fn all_nodes_whose_devices_are_elsewhere_are_found_beside_a_device_that_is_here() {
        let root = FakeRoot::new();
        root.folder("sys/class/infiniband/mlx5_0");
        for node in ["uverbs10", "uverbs0", "uverbs9", "rdma_cm", "issm0"] {
            root.file(&format!("dev/infiniband/{node}"), "");
        }
        let here = |node: &str| {
            let uverbs = Some(Uverbs { name: node.to_owned(), ..Uverbs::default() });
            Hca { uverbs, ..Hca::default() }
        };
        let found = |devices: &[Hca], ask| nodes_alone(&root.reader(), devices, ask).map(|found| found.nodes);
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let exclusive: fn() -> _ = || Ok(Mode::Exclusive);
        assert_eq!(found(&[here("uverbs0")], exclusive), names(&["uverbs9", "uverbs10"]));
        assert_eq!(found(&[], exclusive), names(&["uverbs0", "uverbs9", "uverbs10"]));
        // If each node has its device, the kernel is not asked.
        let all = ["uverbs0", "uverbs9", "uverbs10"].map(here);
        assert_eq!(found(&all, || panic!("no question is left")), None);
    }
}
