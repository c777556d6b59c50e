//! What a supervisor is told: by the preparation, which reads the configuration
//! for it.

use std::time::Duration;

use super::signal_map::{Remap, Rewrite};

/// How long the preparation may take before the command starts without it.
pub const DEFAULT_PREPARE_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything that a supervisor goes by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orders {
    pub terms: Terms,
    pub supervision: Supervision,
    pub voice: Voice,
}

/// What holds for a preparation that does not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Counted from the start; `None` for no deadline.
    pub deadline: Option<Duration>,
    /// `None` to start the command as it is.
    pub refuse: Option<Refusal>,
}

/// A command that must not start unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// To exit with.
    pub code: i32,
    pub asked_by: Enforcing,
}

/// The keys of the configuration that ask for a refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enforcing {
    pub require_rdma: bool,
    pub memlock: bool,
    pub self_test: bool,
}

impl Enforcing {
    /// Each as the configuration file has it.
    fn keys(self) -> Vec<&'static str> {
        let all = [
            (self.require_rdma, "require-rdma"),
            (self.memlock, "memlock = \"enforce\""),
            (self.self_test, "self-test = \"enforce\""),
        ];
        all.into_iter().filter(|(asks, _)| *asks).map(|(_, key)| key).collect()
    }
}

impl Refusal {
    /// The reason: what went wrong, and which keys do not let the command start after that.
    pub fn because(self, what: &str) -> String {
        let keys = self.asked_by.keys();
        let (names, verb) = match &keys[..] {
            [] => ("the configuration".to_owned(), "does"),
            [one] => ((*one).to_owned(), "does"),
            [first @ .., last] => (format!("{} and {last}", first.join(", ")), "do"),
        };
        format!("{what}, and {names} {verb} not let the command start in that case")
    }
}

/// How the command is looked after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Supervision {
    /// Signals go to the command's process group.
    pub kill_group: bool,
    /// So long after the first stop that was forwarded, all that is left is killed.
    pub stop_timeout: Option<Duration>,
    /// So long are others waited for that outlive the command.
    pub drain_timeout: Option<Duration>,
    pub rewrite: Rewrite,
    pub remap: Remap,
    /// What the supervisor gets when its own parent ends.
    pub parent_death_signal: Option<i32>,
    /// Say when a process is reaped that is not the command.
    pub warn_on_reap: bool,
}

impl Supervision {
    /// The keys that were set, and do nothing where nobody stays to look after the command.
    pub fn without_effect_in_place(&self) -> Vec<&'static str> {
        let default = Supervision::default();
        let set = [
            ("kill-group", self.kill_group),
            ("stop-timeout", self.stop_timeout.is_some()),
            ("drain-timeout", self.drain_timeout.is_some()),
            ("rewrite-signal", self.rewrite != default.rewrite),
            ("remap-exit", self.remap != default.remap),
            ("warn-on-reap", self.warn_on_reap),
        ];
        set.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect()
    }
}

/// How a supervisor speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Voice {
    pub json: bool,
    /// Only errors (`log-level = "error"`).
    pub quiet: bool,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { deadline: Some(DEFAULT_PREPARE_TIMEOUT), refuse: None }
    }
}

/// The length of [`Orders::encode`]'s result.
pub const ENCODED: usize = 3 * 8 + 2 * 4 + 7 + Rewrite::SIZE + Remap::SIZE;

const NO_TIME: u64 = u64::MAX;
const NO_NUMBER: i32 = -1;

impl Orders {
    /// As bytes, for a pipe to another process of the same program.
    pub fn encode(&self) -> Vec<u8> {
        let Orders { terms, supervision, voice } = self;
        let mut bytes = Vec::with_capacity(ENCODED);
        for time in [terms.deadline, supervision.stop_timeout, supervision.drain_timeout] {
            // Centuries are as good as what is longer.
            let nanoseconds = time.map_or(NO_TIME, |t| t.as_nanos().try_into().unwrap_or(NO_TIME - 1));
            bytes.extend(nanoseconds.to_le_bytes());
        }
        for number in [terms.refuse.map(|refusal| refusal.code), supervision.parent_death_signal] {
            bytes.extend(number.unwrap_or(NO_NUMBER).to_le_bytes());
        }
        let asked_by = terms.refuse.map(|refusal| refusal.asked_by).unwrap_or_default();
        bytes.extend(
            [
                supervision.kill_group,
                supervision.warn_on_reap,
                voice.json,
                voice.quiet,
                asked_by.require_rdma,
                asked_by.memlock,
                asked_by.self_test,
            ]
            .map(u8::from),
        );
        bytes.extend(supervision.rewrite.table());
        bytes.extend(supervision.remap.table());
        bytes
    }

    /// From [`Orders::encode`]; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Orders> {
        let (mut times, mut numbers, mut flags) = ([None; 3], [None; 2], [false; 7]);
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
        let [code, parent_death_signal] = numbers;
        let [kill_group, warn_on_reap, json, quiet, require_rdma, memlock, self_test] = flags;
        let asked_by = Enforcing { require_rdma, memlock, self_test };
        let refuse = code.map(|code| Refusal { code, asked_by });
        let rewrite = Rewrite::from_table(take(&mut rest)?);
        let remap = Remap::from_table(take(&mut rest)?);
        Some(Orders {
            terms: Terms { deadline, refuse },
            supervision: Supervision {
                kill_group,
                stop_timeout,
                drain_timeout,
                rewrite,
                remap,
                parent_death_signal,
                warn_on_reap,
            },
            voice: Voice { json, quiet },
        })
    }
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_pipe() {
        let full = Orders {
            terms: Terms {
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
            },
            voice: Voice { json: true, quiet: false },
        };
        let bytes = full.encode();
        assert_eq!(bytes.len(), ENCODED);
        let mut same = Orders::decode(&bytes).unwrap();
        assert!(same.supervision.drain_timeout.unwrap() > Duration::from_secs(1 << 33));
        same.supervision.drain_timeout = full.supervision.drain_timeout;
        assert_eq!(same, full);
        assert_eq!(Orders::decode(&Orders::default().encode()), Some(Orders::default()));
        assert_eq!(Orders::decode(&bytes[1..]), None);
        assert_eq!(
            full.supervision.without_effect_in_place(),
            ["kill-group", "stop-timeout", "drain-timeout", "rewrite-signal", "remap-exit", "warn-on-reap"]
        );
        let parent = Supervision { parent_death_signal: Some(9), ..Supervision::default() };
        assert!(parent.without_effect_in_place().is_empty());
    }

    #[test]
    fn a_refusal_names_the_keys_that_ask_for_it_and_no_other() {
        let because = |require_rdma, memlock, self_test| {
            Refusal { code: 121, asked_by: Enforcing { require_rdma, memlock, self_test } }
                .because("it hangs")
        };
        let end = "not let the command start in that case";
        assert_eq!(because(false, false, true), format!("it hangs, and self-test = \"enforce\" does {end}"));
        assert_eq!(
            because(true, false, true),
            format!("it hangs, and require-rdma and self-test = \"enforce\" do {end}")
        );
        assert_eq!(
            because(true, true, true),
            format!("it hangs, and require-rdma, memlock = \"enforce\" and self-test = \"enforce\" do {end}")
        );
    }
}
