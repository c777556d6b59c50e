//! Waits for the name in `MASTER_ADDR`: the DNS entry of a first node that is still starting appears late,
//! and a library that has once received a negative answer may give up or cache that answer.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::under_way::UnderWay;
use crate::config::Config;
use crate::facts::Facts;
use crate::facts::names::Master;
use crate::log::Log;
use crate::resolve;
use crate::text::{duration as shown, shortened, visible};

/// DNS does not announce a new name, so rdma-init asks again after this time.
const PAUSE: Duration = Duration::from_secs(1);

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A name that may not resolve yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PendingName {
    name: String,
    limit: Duration,
}

/// Returns the name that this node may have to wait for; `None` on the first node, which the others look for,
/// and if the name is known to resolve. Most hosts without RDMA have not looked it up yet.
pub(super) fn awaited(config: &Config, facts: &Facts) -> Option<PendingName> {
    let limit = config.wait_for_master.filter(|limit| !limit.is_zero())?;
    let found = facts.names.as_ref().and_then(|names| names.master.as_ref());
    let resolves = matches!(found, Some(Master::InFile(_) | Master::ByDns(_)));
    let is_first = facts.platform.nodes.is_some_and(|nodes| nodes.this == 0);
    let name = facts.platform.master_addr.clone().filter(|_| !resolves && !is_first)?;
    Some(PendingName { name, limit })
}

/// Returns whether the key names a time, but no launcher has named a host to wait for.
pub(super) fn lacks_name(config: &Config, facts: &Facts) -> bool {
    config.wait_for_master.is_some_and(|limit| !limit.is_zero()) && facts.platform.master_addr.is_none()
}

impl PendingName {
    /// Waits until the name resolves or the time expires.
    pub(super) fn wait(&self, under_way: &UnderWay, log: &Log) {
        let started = Instant::now();
        let Some(end) = started.checked_add(self.limit) else { return };
        // It comes from the environment, and from where a launcher has it from.
        let name = visible(&shortened(&self.name));
        let mut told: Option<String> = None;
        loop {
            let why = match resolve::addresses(&self.name, 0, end.min(Instant::now() + ANSWER)) {
                Ok(_) if told.is_none() => return,
                Ok(found) => {
                    let address = found.first().map(|address| address.ip().to_string()).unwrap_or_default();
                    let took = shown(started.elapsed());
                    return log.note(&format!("MASTER_ADDR={name} resolves to {address} after {took}."));
                }
                Err(why) => why,
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return log.warn(&gave_up(&name, self.limit, &why, told.as_deref()));
            }
            if told.is_none() {
                let what = format!("waiting up to {} until MASTER_ADDR={name} resolves", shown(self.limit));
                under_way.is_now(&what);
                log.note(&format!("{what}: {why}."));
                told = Some(why);
            }
            sleep(PAUSE.min(left));
        }
    }
}

/// Says that the wait was in vain, and why, if that was not `told` before.
fn gave_up(name: &str, limit: Duration, why: &str, told: Option<&str>) -> String {
    let why = if told == Some(why) { String::new() } else { format!(": {why}") };
    let limit = shown(limit);
    format!(
        "MASTER_ADDR={name} has not resolved within {limit} (wait-for-master){why}. The command starts without it."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::launchers::Nodes;
    use crate::facts::names::Names;

    #[test]
    fn a_node_waits_for_a_name_of_another_one_that_is_not_there_yet() {
        let unknown = || Some(Master::Unknown("DNS does not know it".to_owned()));
        let config = |limit| Config { wait_for_master: limit, ..Config::default() };
        let facts = |master: Option<Master>, this: Option<u32>| {
            let mut facts = Facts::default();
            facts.platform.master_addr = Some("first.job".to_owned());
            facts.platform.nodes = this.map(|this| Nodes { count: 2, this });
            facts.names = Some(Names { master, ..Names::default() });
            facts
        };
        let minute = Some(Duration::from_secs(60));
        let wanted = Some(PendingName { name: "first.job".to_owned(), limit: Duration::from_secs(60) });
        assert_eq!(awaited(&config(minute), &facts(unknown(), Some(1))), wanted);
        assert_eq!(awaited(&config(minute), &facts(unknown(), None)), wanted);
        assert_eq!(
            awaited(&config(minute), &facts(unknown(), Some(0))),
            None,
            "the first node is the master"
        );
        assert_eq!(awaited(&config(minute), &facts(Some(Master::ByDns(Vec::new())), Some(1))), None);
        assert_eq!(awaited(&config(minute), &facts(None, Some(1))), wanted, "it was not looked up");
        assert_eq!(awaited(&config(None), &facts(unknown(), Some(1))), None);
        assert_eq!(awaited(&config(Some(Duration::ZERO)), &facts(unknown(), Some(1))), None);
    }

    #[test]
    fn the_reason_is_told_once() {
        let told = |before| gave_up("first.job", Duration::from_secs(3), "DNS does not know it", before);
        let line = "MASTER_ADDR=first.job has not resolved within 3s (wait-for-master)";
        let rest = " The command starts without it.";
        assert_eq!(told(Some("DNS does not know it")), format!("{line}.{rest}"));
        for other in [None, Some("no DNS server answers")] {
            assert_eq!(told(other), format!("{line}: DNS does not know it.{rest}"));
        }
    }
}
