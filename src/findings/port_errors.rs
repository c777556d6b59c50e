//! What went wrong on the job's ports while it ran, according to their counters.

use std::time::Duration;

use crate::facts::port_errors::{PortErrors, Rise, Trouble};
use crate::finding::{Finding, Id, Severity};
use crate::findings::port_name::RailId;
use crate::findings::ports::NOT_ACTIVATED;
use crate::text::{coarse, condensed, counted, grouped};

/// A port, and what its counters have counted in some time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PortRises {
    pub rail: RailId,
    /// Whether the port was ACTIVE at the start but not at the end, and whether it is gone.
    pub is_lost: bool,
    pub is_gone: bool,
    /// Whether its link is up, and the subnet manager has not activated the port.
    pub waits_for_manager: bool,
    pub rises: Vec<Rise>,
}

impl PortRises {
    /// Returns what a port has counted between two looks.
    pub(crate) fn between(rail: RailId, before: &PortErrors, now: &PortErrors) -> PortRises {
        PortRises {
            rail,
            is_lost: now.is_lost_since(before),
            is_gone: now.is_gone(),
            waits_for_manager: now.waits_for_manager().is_some(),
            rises: now.since(before),
        }
    }
}

/// What a kind of trouble means. docs/watcher.md has the sources of the thresholds.
pub(crate) struct Kind {
    /// The ID of the findings about it.
    pub id: Id,
    /// How many are worth a finding: at least this many, and this many in each of these times.
    pub least: u64,
    pub per: Duration,
    /// What fails, and how; `None` for what is named by its counter.
    words: Option<(&'static str, &'static str)>,
}

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const ANY_TIME: Duration = Duration::MAX;

pub(crate) fn kind(trouble: Trouble) -> Kind {
    use Trouble as T;
    const NO_ANSWER: &str = "without an answer from the peer (error 12 in NCCL's log)";
    const NOT_READY: &str = "because the peer was not ready (error 13 in NCCL's log)";
    let (id, least, per, words) = match trouble {
        T::LinkDown => (Id::LinkDown, 1, ANY_TIME, None),
        T::NoAnswer => (Id::EndedQueuePairs, 1, ANY_TIME, Some(("queue pair", NO_ANSWER))),
        T::NotReady => (Id::EndedQueuePairs, 1, ANY_TIME, Some(("queue pair", NOT_READY))),
        T::FailedRequest => (Id::EndedQueuePairs, 1, ANY_TIME, Some(("request", ""))),
        T::Completion => (Id::EndedQueuePairs, 1, ANY_TIME, Some(("completion", ""))),
        T::LinkIntegrity => (Id::LinkErrors, 1, ANY_TIME, None),
        T::LinkRecovery => (Id::LinkErrors, 5, MINUTE, None),
        T::Symbol => (Id::LinkErrors, 120, HOUR, None),
        T::ReceiveError => (Id::LinkErrors, 600, MINUTE, None),
        T::Timeout | T::ReceiverNotReady | T::Missed => (Id::LostPackets, 60, MINUTE, None),
        T::SlowRestart => (Id::LostPackets, 600, MINUTE, None),
        T::Discarded | T::OutOfOrder => (Id::LostPackets, 6000, MINUTE, None),
    };
    Kind { id, least, per, words }
}

/// Whether so many in this time are worth a finding, if nothing else was counted.
pub(crate) fn is_worth_reporting(rise: &Rise, time: Duration) -> bool {
    let Kind { least, per, .. } = kind(rise.trouble);
    let times = time.as_secs_f64() / per.as_secs_f64();
    rise.count >= least && rise.count as f64 >= least as f64 * times
}

/// Leaves out what says nothing alone, or nothing more than another counter: packets that came out of order, unless
/// packets were lost as well, because a fabric that routes adaptively, such as Spectrum-X, brings them so by design; and
/// completions of queue pairs whose failure has a counter of its own.
pub(crate) fn meaningful(mut rises: Vec<Rise>) -> Vec<Rise> {
    let is_loss = |rise: &Rise| {
        matches!(
            rise.trouble,
            Trouble::NoAnswer
                | Trouble::Timeout
                | Trouble::Missed
                | Trouble::SlowRestart
                | Trouble::Discarded
        )
    };
    if !rises.iter().any(is_loss) {
        rises.retain(|rise| rise.trouble != Trouble::OutOfOrder);
    }
    let is_end =
        |rise: &Rise| matches!(rise.trouble, Trouble::NoAnswer | Trouble::NotReady | Trouble::FailedRequest);
    if rises.iter().any(is_end) {
        rises.retain(|rise| rise.trouble != Trouble::Completion);
    }
    rises
}

/// Returns what is worth a finding of what a port has counted in this time.
pub(crate) fn worth_reporting(rises: &[Rise], time: Duration) -> Vec<Rise> {
    meaningful(rises.iter().filter(|rise| is_worth_reporting(rise, time)).copied().collect())
}

/// Returns the findings, the worst first. Ports with the same trouble share a finding. `rails`: how many ports the job
/// has, if these are ports of a job.
pub(crate) fn findings(ports: &[PortRises], rails: Option<usize>, time: Duration) -> Vec<Finding> {
    let kinds_of_lost = [(false, FIX_OF_LINK), (false, NOT_ACTIVATED), (true, FIX_OF_GONE)];
    let lost = kinds_of_lost.into_iter().filter_map(|kind| {
        let of = |port: &PortRises| (port.is_gone, fix_of_lost(port.is_gone, port.waits_for_manager));
        let lost = ports.iter().filter(|port| port.is_lost && of(port) == kind);
        let lost: Vec<&PortRises> = lost.collect();
        (!lost.is_empty()).then(|| of_lost(&lost, kind.0, kind.1))
    });
    let kinds = [Id::LinkDown, Id::EndedQueuePairs, Id::LinkErrors, Id::LostPackets];
    lost.chain(kinds.into_iter().filter_map(|id| finding(id, ports, rails, time))).collect()
}

/// Returns the fix for a port that is no longer active, or is gone.
pub(crate) fn fix_of_lost(is_gone: bool, waits_for_manager: bool) -> &'static str {
    match (is_gone, waits_for_manager) {
        (true, _) => FIX_OF_GONE,
        (false, true) => NOT_ACTIVATED,
        (false, false) => FIX_OF_LINK,
    }
}

fn of_lost(ports: &[&PortRises], are_gone: bool, fix: &str) -> Finding {
    let names: Vec<String> = ports.iter().map(|port| port.rail.to_string()).collect();
    let (was, is) = if names.len() == 1 { ("was", "is") } else { ("were", "are") };
    let end = if are_gone { format!("{is} gone now") } else { format!("no longer {is}") };
    let message = format!("{} {was} ACTIVE at first, but {end}.", condensed(&names));
    Finding::warning(Id::LinkDown, message).about_ports(ids(ports)).with_fix(fix)
}

fn finding(id: Id, ports: &[PortRises], rails: Option<usize>, time: Duration) -> Option<Finding> {
    let told = ports.iter().filter_map(|port| {
        let rises = worth_reporting(&port.rises, time).into_iter().filter(|rise| kind(rise.trouble).id == id);
        let (texts, troubles): (Vec<String>, Vec<Trouble>) =
            rises.map(|rise| (text(&rise), rise.trouble)).unzip();
        (!texts.is_empty()).then(|| ((texts.join(", "), port), troubles))
    });
    let (told, troubles): (Vec<(String, &PortRises)>, Vec<Vec<Trouble>>) = told.unzip();
    if told.is_empty() {
        return None;
    }
    let about: Vec<&PortRises> = told.iter().map(|(_, port)| *port).collect();
    let by_text = grouped(told.into_iter().map(|(text, port)| (text, port.rail.to_string())));
    let parts = by_text.into_iter().map(|(text, hcas)| {
        let names = condensed(&hcas);
        match (id, hcas.len()) {
            (Id::LinkDown, 1) => format!("{names}, {text}"),
            (Id::LinkDown, _) => format!("{names}, {text} each"),
            _ => format!("{names}: {text}"),
        }
    });
    let parts = parts.collect::<Vec<_>>().join("; ");
    // A link that fails is one rail's; a process that ends has queue pairs on all rails of its peers.
    let is_peer = id == Id::EndedQueuePairs && about.len() > 1 && Some(about.len()) == rails;
    let (severity, what) = match id {
        Id::LinkDown => (Severity::Warning, "The link went down within"),
        Id::EndedQueuePairs if is_peer => {
            (Severity::Info, "Queue pairs failed on all rails, as when a process of the job ends, in")
        }
        Id::EndedQueuePairs => (Severity::Warning, "Queue pairs failed in"),
        Id::LinkErrors => (Severity::Warning, "The link had errors in"),
        _ => (Severity::Info, "Packets were lost or sent again in"),
    };
    let message = format!("{what} {}: {parts}.", coarse(time));
    let finding = Finding { severity, ..Finding::info(id, message) }.about_ports(ids(&about));
    Some(finding.with_fix(fix_of(id, &troubles.concat())))
}

/// Returns the fix of a finding with this ID about what ports have counted.
fn fix_of(id: Id, troubles: &[Trouble]) -> String {
    // No link is at fault if the peer posts no buffers.
    let is_receiver = |trouble: &Trouble| matches!(trouble, Trouble::NotReady | Trouble::ReceiverNotReady);
    let of_receiver = troubles.iter().any(is_receiver).then_some(FIX_OF_RECEIVER);
    let other = match id {
        Id::LinkDown => FIX_OF_LINK,
        Id::LinkErrors => FIX_OF_LINK_ERRORS,
        Id::EndedQueuePairs => FIX_OF_QUEUE_PAIRS,
        _ => FIX_OF_LOSS,
    };
    let other = (!troubles.iter().all(is_receiver)).then_some(other);
    other.into_iter().chain(of_receiver).collect::<Vec<_>>().join(" ")
}

/// Returns whether a finding has a fix of those with its ID that [`findings`] returns.
pub(crate) fn has_its_fix(finding: &Finding) -> bool {
    let all: &[&str] = match finding.id {
        Id::LinkDown => &[FIX_OF_LINK, NOT_ACTIVATED, FIX_OF_GONE],
        Id::LinkErrors => &[FIX_OF_LINK_ERRORS],
        Id::EndedQueuePairs => &[FIX_OF_QUEUE_PAIRS, FIX_OF_RECEIVER],
        _ => &[FIX_OF_LOSS, FIX_OF_RECEIVER],
    };
    finding.fix.as_ref().is_some_and(|fix| all.iter().any(|one| fix.starts_with(one)))
}

pub(crate) const FIX_OF_LINK: &str =
    "Check the cable, the transceiver and the switch's port; the kernel's log has the times.";
pub(crate) const FIX_OF_GONE: &str = "Look in the kernel's log on the host for this device: its driver, its firmware or the PCI bus may have failed (AER, mlx5 health). lspci on the host shows whether it is still on the bus.";
const FIX_OF_LINK_ERRORS: &str = "Check the cable, the transceiver and the switch's port.";
const FIX_OF_RECEIVER: &str = "A peer that is not ready posts no receive buffers: look for a process on the other nodes that is stopped, slow, or short of CPU time. No link causes this.";
const FIX_OF_QUEUE_PAIRS: &str = "Look in the other nodes' logs for a process that failed first. If none did, check the links between the nodes.";
const FIX_OF_LOSS: &str =
    "Compare this port with the others (rdma-init stat --format prometheus), and check the network for loss.";

/// `4 without an answer from the peer (error 12 in NCCL's log)`, `symbol_error rose by 120`.
fn text(rise: &Rise) -> String {
    let Rise { trouble, counter, count, is_least } = *rise;
    let least = if is_least { "at least " } else { "" };
    match kind(trouble).words {
        None if trouble == Trouble::LinkDown => format!("{least}{}", counted(saturated(count), "time")),
        None => format!("{counter} rose by {least}{count}"),
        Some((thing, "")) => {
            format!("{least}{} ({counter})", counted(saturated(count), &format!("failed {thing}")))
        }
        Some((_, how)) => format!("{least}{count} {how}"),
    }
}

/// Does the same as [`text`] in a line that does not say what failed: `4 queue pairs failed without an answer ...`.
pub(crate) fn sentence(rise: &Rise) -> String {
    let Rise { trouble, counter, count, is_least } = *rise;
    let least = if is_least { "at least " } else { "" };
    match kind(trouble).words {
        None => text(rise),
        Some((thing, how)) => {
            let how = if how.is_empty() { format!("({counter})") } else { how.to_owned() };
            format!("{least}{} failed {how}", counted(saturated(count), thing))
        }
    }
}

fn saturated(count: u64) -> usize {
    count.try_into().unwrap_or(usize::MAX)
}

fn ids(ports: &[&PortRises]) -> Vec<String> {
    ports.iter().map(|port| port.rail.id()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(n: u32, rises: &[(Trouble, &'static str, u64)]) -> PortRises {
        let rise = |&(trouble, counter, count): &(Trouble, &'static str, u64)| Rise {
            trouble,
            counter,
            count,
            is_least: count == 255,
        };
        PortRises {
            rail: RailId::new(&format!("mlx5_{n}"), 1),
            rises: rises.iter().map(rise).collect(),
            ..PortRises::default()
        }
    }

    fn said(ports: &[PortRises], seconds: u64) -> Vec<(Id, Severity, String)> {
        let found = findings(ports, None, Duration::from_secs(seconds)).into_iter();
        found.map(|one| (one.id, one.severity, one.message)).collect()
    }

    #[test]
    fn a_sound_run_has_no_finding() {
        assert_eq!(said(&[], 3600), []);
        assert_eq!(said(&[port(0, &[]), port(1, &[])], 3600), []);
        // A small loss is not a fault of the network.
        let little =
            [(Trouble::Timeout, "local_ack_timeout_err", 59), (Trouble::Symbol, "symbol_error", 119)];
        assert_eq!(said(&[port(0, &little)], 1), []);
        let day =
            [(Trouble::Timeout, "local_ack_timeout_err", 86_399), (Trouble::Symbol, "symbol_error", 2879)];
        assert_eq!(said(&[port(0, &day)], 86_400), []);
    }

    #[test]
    fn ports_with_the_same_trouble_share_a_line() {
        let down = [(Trouble::LinkDown, "link_downed", 3)];
        let full = [(Trouble::LinkDown, "link_downed", 255)];
        let once = [(Trouble::LinkDown, "link_downed", 1)];
        let all = [port(1, &down), port(2, &down), port(4, &full), port(5, &once), port(6, &[])];
        let message = "The link went down within 1h: mlx5_1, mlx5_2, 3 times each; mlx5_4, at least 255 times; mlx5_5, 1 time.";
        assert_eq!(said(&all, 3600), [(Id::LinkDown, Severity::Warning, message.to_owned())]);
        let about = &findings(&all, None, HOUR)[0].about.ports;
        let about: Vec<&str> = about.iter().map(String::as_str).collect();
        assert_eq!(about, ["mlx5_1:1", "mlx5_2:1", "mlx5_4:1", "mlx5_5:1"]);
    }

    #[test]
    fn each_of_several_ports_of_an_hca_has_its_number() {
        let of = |port_number, rises: &[_]| PortRises {
            rail: RailId { is_one_of_several: true, ..RailId::new("mlx5_1", port_number) },
            ..port(1, rises)
        };
        let lost = |number| PortRises { is_lost: true, ..of(number, &[]) };
        let message = |ports: &[PortRises]| said(ports, 10).remove(0).2;
        assert_eq!(
            message(&[lost(1), lost(2)]),
            "mlx5_1:1, mlx5_1:2 were ACTIVE at first, but no longer are."
        );
        let down = [(Trouble::LinkDown, "link_downed", 1)];
        assert_eq!(message(&[of(1, &[]), of(2, &down)]), "The link went down within 10s: mlx5_1:2, 1 time.");
    }

    #[test]
    fn a_device_that_is_gone_is_not_called_inactive() {
        let lost = |n| PortRises { is_lost: true, ..port(n, &[]) };
        let gone = |n| PortRises { is_gone: true, ..lost(n) };
        let told: Vec<String> =
            said(&[lost(1), gone(2), gone(3)], 600).into_iter().map(|(_, _, message)| message).collect();
        assert_eq!(
            told,
            [
                "mlx5_1 was ACTIVE at first, but no longer is.",
                "mlx5_2, mlx5_3 were ACTIVE at first, but are gone now."
            ]
        );
    }

    /// The fix is for what was counted, and for the state of the port.
    #[test]
    fn each_cause_has_its_own_fix() {
        let fix = |port: PortRises| {
            let found = findings(&[port], None, HOUR).remove(0);
            assert!(has_its_fix(&found), "{found:?}");
            found.fix.unwrap()
        };
        let ended = (Trouble::NoAnswer, "req_transport_retries_exceeded", 1);
        let not_ready = (Trouble::NotReady, "req_rnr_retries_exceeded", 1);
        assert_eq!(fix(port(0, &[ended])), FIX_OF_QUEUE_PAIRS);
        assert_eq!(fix(port(0, &[not_ready])), FIX_OF_RECEIVER);
        assert_eq!(fix(port(0, &[ended, not_ready])), format!("{FIX_OF_QUEUE_PAIRS} {FIX_OF_RECEIVER}"));
        assert_eq!(fix(port(0, &[(Trouble::ReceiverNotReady, "rnr_nak_retry_err", 3600)])), FIX_OF_RECEIVER);
        assert_eq!(fix(port(0, &[(Trouble::Missed, "packet_seq_err", 3600)])), FIX_OF_LOSS);
        assert_eq!(
            fix(port(0, &[(Trouble::LinkIntegrity, "local_link_integrity_errors", 1)])),
            FIX_OF_LINK_ERRORS
        );
        let lost = PortRises { is_lost: true, ..port(0, &[]) };
        assert_eq!(fix(lost.clone()), FIX_OF_LINK);
        assert_eq!(fix(PortRises { waits_for_manager: true, ..lost.clone() }), NOT_ACTIVATED);
        assert_eq!(fix(PortRises { is_gone: true, ..lost }), FIX_OF_GONE);
    }

    #[test]
    fn queue_pairs_that_end_on_all_rails_accuse_no_link() {
        let ended = [(Trouble::NoAnswer, "req_transport_retries_exceeded", 16)];
        let severities = |rails| {
            let found = findings(&[port(0, &ended), port(1, &ended)], rails, MINUTE);
            found.iter().map(|one| one.severity).collect::<Vec<_>>()
        };
        assert_eq!(
            (severities(Some(2)), severities(Some(3))),
            (vec![Severity::Info], vec![Severity::Warning])
        );
        assert_eq!(severities(None), [Severity::Warning]);
    }

    /// A network with several paths brings packets out of order that are not lost.
    #[test]
    fn what_the_receiver_counts_needs_more_than_what_the_sender_repeats() {
        let of = |trouble, count| !said(&[port(0, &[(trouble, "x", count)])], 60).is_empty();
        assert!(of(Trouble::Missed, 60) && !of(Trouble::Missed, 59));
        assert!(of(Trouble::Discarded, 6000) && !of(Trouble::Discarded, 5999));
        assert!(!of(Trouble::OutOfOrder, 1_000_000));
        let both = [(Trouble::Missed, "packet_seq_err", 60), (Trouble::OutOfOrder, "out_of_sequence", 6000)];
        assert!(said(&[port(0, &both)], 60)[0].2.contains("out_of_sequence rose by 6000"));
    }

    #[test]
    fn the_worst_is_first_and_each_has_its_number() {
        let lost = PortRises { is_lost: true, ..port(7, &[]) };
        let rises = [
            (Trouble::NoAnswer, "req_transport_retries_exceeded", 4),
            (Trouble::NotReady, "req_rnr_retries_exceeded", 1),
            (Trouble::LinkIntegrity, "local_link_integrity_errors", 1),
            (Trouble::Timeout, "local_ack_timeout_err", 4211),
        ];
        let found = said(&[port(3, &rises), lost], 600);
        assert_eq!(
            found,
            [
                (Id::LinkDown, Severity::Warning, "mlx5_7 was ACTIVE at first, but no longer is."),
                (
                    Id::EndedQueuePairs,
                    Severity::Warning,
                    "Queue pairs failed in 10m: mlx5_3: 4 without an answer from the peer (error 12 in NCCL's log), 1 because the peer was not ready (error 13 in NCCL's log)."
                ),
                (
                    Id::LinkErrors,
                    Severity::Warning,
                    "The link had errors in 10m: mlx5_3: local_link_integrity_errors rose by 1."
                ),
                (
                    Id::LostPackets,
                    Severity::Info,
                    "Packets were lost or sent again in 10m: mlx5_3: local_ack_timeout_err rose by 4211."
                ),
            ]
            .map(|(id, severity, message)| (id, severity, message.to_owned()))
        );
    }
}
