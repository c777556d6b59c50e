//! The counters of a port by RDMA netlink, as rdma-statistic(8) shows them. The kernel reports them to any
//! user in any network namespace that sees the device, even if /sys has none of them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use netlink_packet_core::{NLM_F_DUMP, NetlinkBuffer, NlasIterator};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::netlink;

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, ...)` of `rdma/rdma_netlink.h`: `RDMA_NLDEV_CMD_GET` and
/// `RDMA_NLDEV_CMD_STAT_GET`.
const GET: u16 = (5 << 10) | 1;
const STAT_GET: u16 = (5 << 10) | 17;

/// The attributes of `enum rdma_nldev_attr`.
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const HWCOUNTERS: u16 = 80;
const HWCOUNTER_NAME: u16 = 82;
const HWCOUNTER_VALUE: u16 = 83;

/// The bits of an attribute's kind that are not a number (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const FLAGS: u16 = 0xc000;

/// In bytes: an attribute of four bytes.
const NUMBER: u16 = 8;

/// In bytes: more than the kernel sends at once.
const BUFFER: usize = 32 * 1024;

/// More messages than the list of all devices takes.
const MOST: usize = 4096;

/// `NLMSG_DONE`, `NLMSG_ERROR` of netlink(7).
const DONE: u16 = 3;
const ERROR: u16 = 2;

/// Asks the kernel for the counters of its RDMA devices.
pub(crate) struct Statistics {
    socket: OwnedFd,
    /// The kernel's index of each device, by the device's name.
    indices: BTreeMap<String, u32>,
    /// The number of the last question: an answer that was left unread is no answer to the next one.
    asked: Cell<u32>,
}

impl Statistics {
    /// # Errors
    /// The socket's error, or the kernel's.
    pub(crate) fn open() -> Result<Statistics, Errno> {
        let socket = netlink::open(SockProtocol::NetlinkRDMA)?;
        const FIRST: u32 = 1;
        ask(&socket, GET, NLM_F_DUMP, FIRST, &[])?;
        let mut indices = BTreeMap::new();
        answers(&socket, FIRST, |kind, payload| {
            indices.extend((kind == GET).then(|| device_of(payload)).flatten());
            kind == GET
        })?;
        Ok(Statistics { socket, indices, asked: Cell::new(FIRST) })
    }

    /// Returns the counters of a port, by the driver's names.
    ///
    /// # Errors
    /// The socket's error, or the kernel's: ENODEV for a device that this namespace does not see, EOPNOTSUPP
    /// for one without counters.
    pub(crate) fn of(&self, hca: &str, port: u32) -> Result<BTreeMap<String, u64>, Errno> {
        let index = *self.indices.get(hca).ok_or(Errno::ENODEV)?;
        let number = self.asked.get().wrapping_add(1);
        self.asked.set(number);
        ask(&self.socket, STAT_GET, 0, number, &[(DEV_INDEX, index), (PORT_INDEX, port)])?;
        let mut found = None;
        answers(&self.socket, number, |kind, payload| {
            let is_it = kind == STAT_GET && is_about(payload, index, port);
            found = is_it.then(|| counters_of(payload));
            kind == STAT_GET && !is_it
        })?;
        found.ok_or(Errno::EBADMSG)
    }
}

fn ask(fd: &OwnedFd, command: u16, flags: u16, number: u32, attributes: &[(u16, u32)]) -> Result<(), Errno> {
    let mut bytes = Vec::new();
    for (kind, value) in attributes {
        bytes.extend(NUMBER.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
    }
    netlink::ask(fd, command, flags, number, &bytes)
}

/// Passes each message of the answer to the question with this number to `take`, which says whether more of them are to
/// come.
fn answers(fd: &OwnedFd, number: u32, mut take: impl FnMut(u16, &[u8]) -> bool) -> Result<(), Errno> {
    let mut buffer = vec![0; BUFFER];
    for _ in 0..MOST {
        let mut rest = netlink::receive(fd, &mut buffer)?;
        while let Ok(packet) = NetlinkBuffer::new_checked(rest) {
            match packet.message_type() {
                _ if packet.sequence_number() != number => {}
                DONE => return Ok(()),
                ERROR => {
                    let code = packet.payload().get(..4).and_then(|bytes| bytes.try_into().ok());
                    return match code.map_or(0, i32::from_ne_bytes) {
                        0 => Ok(()),
                        code => Err(Errno::from_raw(code.saturating_neg())),
                    };
                }
                kind if !take(kind, packet.payload()) => return Ok(()),
                _ => {}
            }
            // Messages begin at multiples of four bytes.
            rest = rest.get((packet.length() as usize).next_multiple_of(4)..).unwrap_or_default();
        }
    }
    Err(Errno::EBADMSG)
}

/// Returns whether this message is about this port of this device.
fn is_about(payload: &[u8], index: u32, port: u32) -> bool {
    let number = |kind: u16| {
        let mut all = NlasIterator::new(payload).filter_map(Result::ok);
        let found = all.find(|attribute| attribute.kind() & !FLAGS == kind)?;
        Some(u32::from_ne_bytes(found.value().get(..4)?.try_into().ok()?))
    };
    number(DEV_INDEX) == Some(index) && number(PORT_INDEX) == Some(port)
}

/// Returns the name and the index of the device that this message is about.
fn device_of(payload: &[u8]) -> Option<(String, u32)> {
    let attributes = || NlasIterator::new(payload).filter_map(Result::ok);
    let name = attributes().find(|attribute| attribute.kind() & !FLAGS == DEV_NAME)?;
    let name = name.value().strip_suffix(&[0]).unwrap_or(name.value()).to_vec();
    let index = attributes().find(|attribute| attribute.kind() & !FLAGS == DEV_INDEX)?;
    Some((String::from_utf8(name).ok()?, u32::from_ne_bytes(index.value().get(..4)?.try_into().ok()?)))
}

fn counters_of(payload: &[u8]) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let all = NlasIterator::new(payload).filter_map(Result::ok);
    for list in all.filter(|attribute| attribute.kind() & !FLAGS == HWCOUNTERS) {
        for entry in NlasIterator::new(list.value()).filter_map(Result::ok) {
            let (mut name, mut value) = (None, None);
            for one in NlasIterator::new(entry.value()).filter_map(Result::ok) {
                match one.kind() & !FLAGS {
                    HWCOUNTER_NAME => {
                        let text = one.value().strip_suffix(&[0]).unwrap_or(one.value());
                        name = String::from_utf8(text.to_vec()).ok();
                    }
                    HWCOUNTER_VALUE => {
                        value = one.value().get(..8).and_then(|bytes| bytes.try_into().ok());
                    }
                    _ => {}
                }
            }
            found.extend(name.zip(value.map(u64::from_ne_bytes)));
        }
    }
    found
}

/// What the fuzzers call; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    device_of(data);
    counters_of(data);
    is_about(data, 0, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_counters_are_read_out_of_the_answer() {
        let entry = |name: &str, value: u64| {
            let inner = [
                attribute(HWCOUNTER_NAME, &[name.as_bytes(), &[0]].concat()),
                attribute(HWCOUNTER_VALUE, &value.to_ne_bytes()),
            ];
            attribute(81 | 0x8000, &inner.concat())
        };
        let list = [entry("sent_pkts", 70), entry("completer_retry_err", 3)].concat();
        let payload = [attribute(DEV_INDEX, &[0; 4]), attribute(HWCOUNTERS | 0x8000, &list)].concat();
        let found: Vec<_> = counters_of(&payload).into_iter().collect();
        assert_eq!(found, [("completer_retry_err".to_owned(), 3), ("sent_pkts".to_owned(), 70)]);
        for length in 0..payload.len() {
            let _ = counters_of(&payload[..length]);
        }
    }

    /// As left unread after a question that took too long.
    #[test]
    fn the_answer_about_another_port_is_not_taken() {
        let answer = |index: u32, port: u32| {
            [attribute(DEV_INDEX, &index.to_ne_bytes()), attribute(PORT_INDEX, &port.to_ne_bytes())].concat()
        };
        assert!(is_about(&answer(7, 1), 7, 1));
        assert!(!is_about(&answer(6, 1), 7, 1) && !is_about(&answer(7, 2), 7, 1));
        assert!(!is_about(&answer(7, 1)[..8], 7, 1) && !is_about(&[], 0, 0));
    }

    #[test]
    fn a_device_has_the_index_of_its_own_message() {
        let message = [attribute(DEV_INDEX, &7u32.to_ne_bytes()), attribute(DEV_NAME, b"rxe0\0")].concat();
        assert_eq!(device_of(&message), Some(("rxe0".to_owned(), 7)));
        assert_eq!(device_of(&[]), None);
    }
}
