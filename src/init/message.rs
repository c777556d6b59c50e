//! The messages from the child that prepares to PID 1. All have the same length in bytes, so that each read
//! of the pipe returns one message. They are not JSON, because PID 1 itself reads them, and a JSON reader
//! would need memory in PID 1.

use std::time::Duration;

use super::orders::{Enforcing, FailureOrders, Orders, Refusal, Supervision, Voice};
use super::signal_map::{Remap, Rewrite};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum InitMessage {
    /// The orders; the latest ones apply.
    Orders(Box<Orders>),
    /// The command could not be executed, and this was reported.
    NotRun,
}

const ORDERS: u8 = 1;
const NOT_RUN: u8 = 2;

const NO_TIME: u64 = u64::MAX;
const NO_NUMBER: i32 = -1;

impl InitMessage {
    /// In bytes: one that says what it is, then room for orders.
    pub(super) const LENGTH: usize = 1 + 3 * 8 + 3 * 4 + 9 + Rewrite::SIZE + Remap::SIZE;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(InitMessage::LENGTH);
        match self {
            InitMessage::Orders(orders) => {
                bytes.push(ORDERS);
                put(orders, &mut bytes);
            }
            InitMessage::NotRun => bytes.push(NOT_RUN),
        }
        bytes.resize(InitMessage::LENGTH, 0);
        bytes
    }

    /// Decodes the bytes from [`InitMessage::encode`]; `None` for anything else.
    pub(super) fn decode(bytes: &[u8]) -> Option<InitMessage> {
        match bytes.split_first()? {
            _ if bytes.len() != InitMessage::LENGTH => None,
            (&ORDERS, rest) => Some(InitMessage::Orders(Box::new(orders(rest)?))),
            (&NOT_RUN, _) => Some(InitMessage::NotRun),
            _ => None,
        }
    }
}

fn put(orders: &Orders, bytes: &mut Vec<u8>) {
    let Orders { terms, supervision, voice } = orders;
    for time in [terms.deadline, supervision.stop_timeout, supervision.drain_timeout] {
        // Times are capped at centuries.
        let nanoseconds = time.map_or(NO_TIME, |t| t.as_nanos().try_into().unwrap_or(NO_TIME - 1));
        bytes.extend(nanoseconds.to_le_bytes());
    }
    let code = terms.refuse.map(|refusal| refusal.code);
    for number in [code, supervision.parent_death_signal, supervision.fabric_exit_code] {
        bytes.extend(number.unwrap_or(NO_NUMBER).to_le_bytes());
    }
    let asked_by = terms.refuse.map(|refusal| refusal.asked_by).unwrap_or_default();
    bytes.extend(
        [
            supervision.kill_group,
            supervision.warn_on_reap,
            supervision.watch,
            voice.json,
            voice.quiet,
            asked_by.require_rdma,
            asked_by.memlock,
            asked_by.self_test,
            asked_by.preflight,
        ]
        .map(u8::from),
    );
    bytes.extend(supervision.rewrite.table());
    bytes.extend(supervision.remap.table());
}

fn orders(bytes: &[u8]) -> Option<Orders> {
    let (mut times, mut numbers, mut flags) = ([None; 3], [None; 3], [false; 9]);
    let mut rest = bytes;
    for time in &mut times {
        let nanoseconds = u64::from_le_bytes(*take(&mut rest)?);
        *time = (nanoseconds != NO_TIME).then(|| Duration::from_nanos(nanoseconds));
    }
    for number in &mut numbers {
        let found = i32::from_le_bytes(*take(&mut rest)?);
        *number = (found != NO_NUMBER).then_some(found);
    }
    for flag in &mut flags {
        *flag = *take::<1>(&mut rest)? == [1];
    }
    let [deadline, stop_timeout, drain_timeout] = times;
    let [code, parent_death_signal, fabric_exit_code] = numbers;
    let [kill_group, warn_on_reap, watch, json, quiet, require_rdma, memlock, self_test, preflight] = flags;
    let asked_by = Enforcing { require_rdma, memlock, self_test, preflight };
    let refuse = code.map(|code| Refusal { code, asked_by });
    let rewrite = Rewrite::from_table(take(&mut rest)?);
    let remap = Remap::from_table(take(&mut rest)?);
    Some(Orders {
        terms: FailureOrders { deadline, refuse },
        supervision: Supervision {
            kill_group,
            stop_timeout,
            drain_timeout,
            rewrite,
            remap,
            parent_death_signal,
            warn_on_reap,
            watch,
            fabric_exit_code,
        },
        voice: Voice { json, quiet },
    })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(first)
}

/// What the fuzzers call; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    if let Some(message) = InitMessage::decode(data) {
        assert_eq!(InitMessage::decode(&message.encode()), Some(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_the_pipe(orders: Orders) -> Orders {
        let bytes = InitMessage::Orders(Box::new(orders)).encode();
        assert_eq!(bytes.len(), InitMessage::LENGTH);
        match InitMessage::decode(&bytes) {
            Some(InitMessage::Orders(orders)) => *orders,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn orders_survive_the_pipe() {
        let full = Orders {
            terms: FailureOrders {
                deadline: None,
                refuse: Some(Refusal {
                    code: 121,
                    asked_by: Enforcing { self_test: true, ..Enforcing::default() },
                }),
            },
            supervision: Supervision {
                kill_group: true,
                stop_timeout: Some(Duration::from_millis(1500)),
                drain_timeout: Some(Duration::MAX),
                rewrite: Rewrite::new(&["TERM:INT", "HUP:0"]).unwrap(),
                remap: Remap::new(&["143", "3:9"]).unwrap(),
                parent_death_signal: Some(9),
                warn_on_reap: true,
                watch: true,
                fabric_exit_code: Some(42),
            },
            voice: Voice { json: true, quiet: false },
        };
        let mut same = through_the_pipe(full);
        assert!(same.supervision.drain_timeout.unwrap() > Duration::from_secs(1 << 33));
        same.supervision.drain_timeout = full.supervision.drain_timeout;
        assert_eq!(same, full);
        assert_eq!(through_the_pipe(Orders::default()), Orders::default());
    }

    #[test]
    fn anything_else_is_no_message() {
        let not_run = InitMessage::NotRun.encode();
        assert_eq!(not_run.len(), InitMessage::LENGTH);
        assert_eq!(InitMessage::decode(&not_run), Some(InitMessage::NotRun));
        assert_eq!(InitMessage::decode(&not_run[1..]), None);
        assert_eq!(InitMessage::decode(&[0; InitMessage::LENGTH]), None);
        assert_eq!(InitMessage::decode(&[]), None);
    }
}
