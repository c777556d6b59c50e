//! The lines about what is new on the ports. Ports with the same news share a line. Pure.

use std::time::Duration;

use nix::errno::Errno;

use super::track::{Event, Track, WatchedPort};
use crate::facts::gid::address;
use crate::facts::port_look::{GidPlace, UsedGid};
use crate::finding::{Finding, Id};
use crate::findings::port_errors::{FIX_OF_GONE, fix_of_lost};
use crate::findings::port_name::RailId;
use crate::plan::failover::SWITCH;
use crate::text::{coarse, condensed, grouped, visible};

/// A port of the job with what is known of it, and what is new.
#[derive(Clone, Copy)]
pub(super) struct News<'a> {
    pub port: &'a WatchedPort,
    pub track: &'a Track,
    pub events: &'a [Event],
}

/// Returns the lines about all that is new, except for counters that are full: those are below what they have counted.
pub(super) fn changes(news: &[News]) -> Vec<Finding> {
    let mut findings = renamed(news);
    findings.extend(
        each(news, |event| match event {
            Event::Unreadable(errno) => Some(why(*errno)),
            _ => None,
        })
        .map(|(why, rails)| {
            let message = format!("The state of {} cannot be read ({why}).", rails.names());
            rails.about(Finding::warning(Id::LinkDown, message)).with_fix(FIX_OF_UNREADABLE)
        }),
    );
    findings.extend(
        each(news, |event| match event {
            Event::Readable { after } => Some(coarse(*after)),
            _ => None,
        })
        .map(|(time, rails)| {
            let lost: Vec<String> = rails
                .0
                .iter()
                .filter_map(|one| Some(format!("; {} {}", one.track.rail, one.track.state()?)))
                .collect();
            let message =
                format!("The state of {} can be read again, after {time}{}.", rails.names(), lost.concat());
            rails.about(Finding::info(Id::LinkDown, message))
        }),
    );
    findings.extend(each(news, |event| (*event == Event::Replaced).then_some(())).map(|((), rails)| {
        let (was, is, them) = rails.number(("was", "is", "it"), ("were", "are", "them"));
        let message = format!(
            "{} {was} gone since the last look, and {is} back. Connections over {them} from before have failed.",
            rails.names()
        );
        rails.about(Finding::warning(Id::LinkDown, message)).with_fix(FIX_OF_GONE)
    }));
    findings.extend(lost(news));
    findings.extend(
        each(news, |event| match event {
            Event::Back { after, was_gone } => Some((coarse(*after), *was_gone)),
            _ => None,
        })
        .map(|((time, was_gone), rails)| {
            let (names, (is, them)) = (rails.names(), rails.number(("is", "it"), ("are", "them")));
            let message = match was_gone {
                true => format!(
                    "{names} {is} back, after {time}. Connections over {them} from before have failed."
                ),
                false => format!("{names} {is} active again, after {time}."),
            };
            rails.about(Finding::info(Id::LinkDown, message))
        }),
    );
    findings.extend(rates(news));
    findings.extend(gids(news));
    findings
}

/// Returns notes about counters that no longer count.
pub(super) fn full_counters(news: &[News]) -> Vec<Finding> {
    let full = each(news, |event| match event {
        Event::Full(counters) => Some(counters.join(", ")),
        _ => None,
    });
    let line = |(counters, rails): (String, Rails)| {
        let names = rails.names();
        let message =
            format!("Counters of {names} have reached their maximum and no longer count: {counters}.");
        rails.about(Finding::info(Id::LinkErrors, message))
    };
    full.map(line).collect()
}

/// Returns notes about what the watcher cannot see on these ports.
pub(super) fn unwatched(ports: &[WatchedPort]) -> Vec<Finding> {
    let note = |id, is_it: fn(&WatchedPort) -> bool, [one, several]: [&str; 2], unseen: &str| {
        let them: Vec<&WatchedPort> = ports.iter().filter(|port| is_it(port)).collect();
        let names = condensed(&them.iter().map(|port| port.rail.to_string()).collect::<Vec<_>>());
        let are = if them.len() == 1 { one } else { several };
        let message = format!("{names} {are}: the watcher cannot see {unseen}.");
        let finding = Finding::info(id, message).about_ports(them.iter().map(|port| port.rail.id()));
        (!them.is_empty()).then_some(finding)
    };
    let losses = note(
        Id::LinkErrors,
        |port| port.first.errors.is_active() && !port.first.errors.counts_losses(),
        [
            "counts neither lost packets nor failed queue pairs here",
            "count neither lost packets nor failed queue pairs here",
        ],
        "these",
    );
    let traffic = note(
        Id::NoTraffic,
        |port| port.first.errors.is_active() && !port.first.traffic.is_known(),
        ["counts no traffic here", "count no traffic here"],
        "a stall or an idle rail",
    );
    let bonds = note(
        Id::LinkDown,
        |port| port.is_bond,
        ["is the HCA of a bond", "are HCAs of bonds"],
        "that one link of a bond goes down while another one is up",
    );
    [losses, traffic, bonds].into_iter().flatten().collect()
}

/// Ports that share a line.
struct Rails<'a>(Vec<News<'a>>);

impl Rails<'_> {
    fn names(&self) -> String {
        condensed(&self.0.iter().map(|one| one.track.rail.to_string()).collect::<Vec<_>>())
    }

    fn number<T>(&self, one: T, several: T) -> T {
        if self.0.len() == 1 { one } else { several }
    }

    fn about(&self, finding: Finding) -> Finding {
        finding.about_ports(self.0.iter().map(|one| one.track.rail.id()))
    }
}

/// Returns the ports with such an event, by what is the same in their lines.
fn each<'a, K: PartialEq>(
    news: &[News<'a>],
    select: impl Fn(&Event) -> Option<K>,
) -> impl Iterator<Item = (K, Rails<'a>)> {
    let selected = |one: &News<'a>| Some((one.events.iter().find_map(&select)?, *one));
    let all: Vec<(K, News<'a>)> = news.iter().filter_map(selected).collect();
    grouped(all).into_iter().map(|(key, rails)| (key, Rails(rails)))
}

fn lost(news: &[News]) -> Vec<Finding> {
    let lost = each(news, |event| match event {
        Event::Down { waits } => Some((false, *waits)),
        Event::Gone => Some((true, None)),
        _ => None,
    });
    let mut lost: Vec<_> = lost.collect();
    // Those that are down are first.
    lost.sort_by_key(|(state, _)| *state);
    let line = |((are_gone, state), rails): ((bool, Option<&'static str>), Rails)| {
        let failover = match rails.0.iter().all(|one| one.port.fails_over) {
            true => format!(" NCCL may continue over another port of the NIC ({SWITCH})."),
            false => String::new(),
        };
        let what = if are_gone { "gone" } else { "no longer active" };
        let (is, its) = rails.number(("is", "Its state is"), ("are", "Their state is"));
        let named = state.map(|state| format!(" {its} {state}.")).unwrap_or_default();
        let message = format!("{} {is} {what}.{named}{failover}", rails.names());
        rails.about(Finding::warning(Id::LinkDown, message)).with_fix(fix_of_lost(are_gone, state.is_some()))
    };
    lost.into_iter().map(line).collect()
}

fn why(errno: Errno) -> String {
    match errno {
        Errno::EBADMSG => "its file has a text that the kernel does not write".to_owned(),
        errno => format!("{errno:?}"),
    }
}

const FIX_OF_UNREADABLE: &str =
    "Look in the kernel's log on the host for this device: its firmware or its driver may have failed.";

fn rates(news: &[News]) -> Vec<Finding> {
    let line =
        |rails: &Rails, rate: &str| format!("{} {} at {rate}.", rails.names(), rails.number("runs", "run"));
    let slow = each(news, |event| match event {
        Event::Slower { first, now } => Some(format!("{now} instead of {first}, the rate at the start")),
        _ => None,
    });
    let slow = slow.map(|(rate, rails)| {
        rails.about(Finding::warning(Id::SlowLink, line(&rails, &rate))).with_fix(FIX_OF_RATE)
    });
    let back = each(news, |event| match event {
        Event::RateBack { now, after } => Some(format!("{now} again, after {}", coarse(*after))),
        _ => None,
    });
    let back = back.map(|(rate, rails)| rails.about(Finding::info(Id::SlowLink, line(&rails, &rate))));
    slow.chain(back).collect()
}

const FIX_OF_RATE: &str = "Check the cable, the transceiver and the switch's port: lanes may have failed.";

const FIX_OF_GID: &str = "Find out what changes the addresses of this interface. Restart the container: rdma-init then decides again.";
const FIX_OF_SEARCHED_GID: &str = "Find out what changes the addresses of this interface. Only connections that exist may fail: NCCL needs no restart for new ones.";
const FIX_OF_UNKNOWN_NCCL: &str = "Find out what changes the addresses of this interface. With NCCL before 2.21, restart the container: rdma-init then decides again.";

/// The GIDs of two ports are different ones, so each has its line.
fn gids(news: &[News]) -> Vec<Finding> {
    let of_port = |one: &News| {
        let used = one.port.gid.as_ref()?;
        let finding = one.events.iter().find_map(|event| gid(&one.track.rail, used, event))?;
        Some(finding.about_ports([one.track.rail.id()]))
    };
    news.iter().filter_map(of_port).collect()
}

fn gid(rail: &RailId, used: &UsedGid, event: &Event) -> Option<Finding> {
    let (name, index) = (format!("The GID of {rail} ({})", address(used.gid)), used.index);
    let place = match event {
        Event::GidMoved(place) => place,
        Event::GidBack { after } => {
            let message = format!("{name} is at index {index} again, after {}.", coarse(*after));
            return Some(Finding::info(Id::GidChanged, message));
        }
        _ => return None,
    };
    let (message, fix) = match place {
        GidPlace::At(now) => {
            let (follows, fix) = match used.is_searched {
                Some(true) => {
                    ("NCCL searches for it, so new connections follow".to_owned(), FIX_OF_SEARCHED_GID)
                }
                Some(false) => (
                    format!(
                        "NCCL does not search for it, and new connections use what is at index {index} now"
                    ),
                    FIX_OF_GID,
                ),
                None => (
                    format!(
                        "NCCL 2.21 and later search for it, so new connections follow; with an earlier one, they use what is at index {index} now"
                    ),
                    FIX_OF_UNKNOWN_NCCL,
                ),
            };
            (format!("{name} has moved from index {index}, which the job uses, to {now}: {follows}."), fix)
        }
        GidPlace::Retyped => {
            let kind = String::from(used.kind.clone());
            let message = format!(
                "{name}, which the job uses, is no longer {kind} at index {index}, and is so at no other index."
            );
            (message, FIX_OF_GID)
        }
        GidPlace::Gone { has_address } => {
            let why = match has_address {
                true => "it is at no index of the table",
                false => "no interface here still has this address",
            };
            (format!("{name}, which the job uses, is gone from index {index}: {why}."), FIX_OF_GID)
        }
        GidPlace::InPlace => return None,
    };
    Some(Finding::warning(Id::GidChanged, message).with_fix(fix))
}

/// Reports devices that have come back under another name, each once for all of its ports.
fn renamed(news: &[News]) -> Vec<Finding> {
    let renamed = news.iter().filter_map(|one| {
        let RailId { hca, now, .. } = &one.track.rail;
        let event = one.events.iter().find_map(|event| match event {
            Event::Renamed { away, by_guid, is_lost } => {
                Some(Renamed { one: *one, away: *away, by_guid: *by_guid, is_lost: *is_lost })
            }
            _ => None,
        });
        Some(((hca, now), event?))
    });
    grouped(renamed).into_iter().filter_map(|(_, ports)| device_renamed(&ports)).collect()
}

/// A port whose device has another name.
struct Renamed<'a> {
    one: News<'a>,
    away: Option<Duration>,
    by_guid: bool,
    is_lost: bool,
}

/// Returns what to report about a device that has another name than before, with these ports.
fn device_renamed(ports: &[Renamed]) -> Option<Finding> {
    let Renamed { one: News { port, track, .. }, away, by_guid, .. } = ports.first()?;
    // A job with one port of the device has no number for it.
    let original = if ports.len() == 1 { track.rail.first_name() } else { visible(&track.rail.hca) };
    let name = match &track.rail.now {
        Some(name) => format!("under another name: it is {} now", visible(name)),
        None => "under its original name".to_owned(),
    };
    let after = away.map(|away| format!(", after {}", coarse(away))).unwrap_or_default();
    let name_with_number =
        |port: &Renamed| RailId { is_one_of_several: true, ..port.one.track.rail.clone() }.first_name();
    let lost: Vec<String> = ports.iter().filter(|port| port.is_lost).map(name_with_number).collect();
    let inactive = match lost.len() {
        0 => String::new(),
        all if all == ports.len() => ", and is not active yet".to_owned(),
        1 => format!(", and {} is not active yet", condensed(&lost)),
        _ => format!(", and {} are not active yet", condensed(&lost)),
    };
    // What it was recognized by. Under its original name, nothing needed to be.
    let same = match (&track.rail.now, &port.device.pci_address, &port.device.node_guid) {
        (Some(_), Some(pci), _) if !by_guid => format!(" (PCI function {pci})"),
        (Some(_), _, Some(guid)) => format!(" (node GUID {guid})"),
        _ => String::new(),
    };
    let message = format!("{original}{same} came back {name}{after}{inactive}.");
    let ids = ports.iter().map(|port| port.one.track.rail.id());
    Some(Finding::warning(Id::LinkDown, message).about_ports(ids).with_fix(FIX_OF_NAME))
}

const FIX_OF_NAME: &str = "Restart the container: rdma-init then decides again. NCCL opens HCAs by their names at its start, and connections over this one have failed if its driver was loaded again.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::gid::GidType;
    use crate::facts::port_counters::Counters;
    use crate::facts::port_look::{PortLook, read};
    use crate::finding::Severity;
    use crate::watch::judge::Judge;

    /// Makes a reading of a port with this state, this rate, and this value of `link_downed`.
    fn look(state: &str, rate: &str, downed: &str) -> PortLook {
        let root = FakeRoot::new();
        let files = [("state", state), ("rate", rate), ("counters/link_downed", downed)];
        root.files("sys/class/infiniband/x_0/ports/1", &files);
        let reader = root.reader();
        read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
    }

    fn active() -> PortLook {
        look("4: ACTIVE\n", FULL, "0\n")
    }

    /// Returns the lines about rates and full counters, with the number of the look.
    fn rates(looks: &[[PortLook; 2]]) -> Vec<(u64, Severity, String)> {
        let port =
            |hca: &str| WatchedPort { rail: RailId::new(hca, 1), first: active(), ..WatchedPort::default() };
        let mut judge = Judge::patient(vec![port("mlx5_1"), port("mlx5_2")], Duration::MAX);
        let mut all = Vec::new();
        for (number, looks) in (1..).zip(looks) {
            let found = judge.judge(Duration::from_secs(number * 10), looks.to_vec()).into_iter();
            let found = found.filter(|one| one.id == Id::SlowLink || one.message.contains("maximum"));
            all.extend(found.map(|one| (number, one.severity, one.message)));
        }
        all
    }

    const FULL: &str = "200 Gb/sec (4X HDR)\n";

    #[test]
    fn a_rate_that_is_lost_and_found_again_is_told_once_each() {
        let up = |rate| look("4: ACTIVE\n", rate, "0\n");
        let narrow = || up("50 Gb/sec (1X HDR)\n");
        let down = || look("1: DOWN\n", "10 Gb/sec (4X SDR)\n", "0\n");
        let looks = [
            [up(FULL), up("?")],
            [narrow(), narrow()],
            [narrow(), narrow()],
            [down(), up(FULL)],
            [up(FULL), up(FULL)],
            [down(), up(FULL)],
        ];
        assert_eq!(
            rates(&looks),
            [
                (
                    2,
                    Severity::Warning,
                    "mlx5_1, mlx5_2 run at 50 Gb/sec (1X HDR) instead of 200 Gb/sec (4X HDR), the rate at the start."
                        .to_owned()
                ),
                (4, Severity::Info, "mlx5_2 runs at 200 Gb/sec (4X HDR) again, after 20s.".to_owned()),
                (5, Severity::Info, "mlx5_1 runs at 200 Gb/sec (4X HDR) again, after 30s.".to_owned()),
            ]
        );
    }

    #[test]
    fn each_rate_below_the_first_is_said() {
        let at = |rate: &str| [look("4: ACTIVE\n", rate, "0\n"), active()];
        let (half, narrow) = ("100 Gb/sec (2X HDR)\n", "50 Gb/sec (1X HDR)\n");
        let lines = rates(&[at(half), at(half), at(narrow), at(narrow)]);
        let lines: Vec<_> = lines.iter().map(|(look, _, line)| (*look, line.as_str())).collect();
        let [(1, first), (3, second)] = &lines[..] else { panic!("{lines:?}") };
        assert!(first.starts_with("mlx5_1 runs at 100 Gb/sec (2X HDR) instead of 200 "), "{first}");
        assert!(second.starts_with("mlx5_1 runs at 50 Gb/sec (1X HDR) instead of 200 "), "{second}");
    }

    /// After its driver was loaded again, a device may have no link; and the state may be missing for a moment.
    #[test]
    fn a_port_that_is_lost_in_another_way_has_a_line() {
        let gone = || {
            let reader = FakeRoot::new().reader();
            read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
        };
        let stateless = || {
            let root = FakeRoot::new();
            root.files("sys/class/infiniband/x_0/ports/1", &[("counters/link_downed", "0\n")]);
            let reader = root.reader();
            read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
        };
        let port = WatchedPort {
            rail: RailId::new("mlx5_1", 1),
            is_infiniband: true,
            first: active(),
            ..WatchedPort::default()
        };
        let mut judge = Judge::patient(vec![port], Duration::MAX);
        let mut at = Duration::ZERO;
        let mut said = |look| {
            at += Duration::from_secs(10);
            let found = judge.judge(at, vec![look]);
            found.into_iter().map(|one| one.message).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(said(gone()), "mlx5_1 is gone.");
        assert_eq!(said(look("2: INIT\n", FULL, "0\n")), "mlx5_1 is no longer active. Its state is INIT.");
        assert_eq!(said(look("1: DOWN\n", FULL, "0\n")), "mlx5_1 is no longer active.");
        assert_eq!(said(stateless()), "");
        assert_eq!(said(active()), "mlx5_1 is back, after 40s. Connections over it from before have failed.");
    }

    #[test]
    fn what_cannot_be_seen_is_said_of_the_ports_that_hide_it() {
        let port = |hca: &str, files: &[(&str, &str)], is_bond| {
            let root = FakeRoot::new();
            root.files("sys/class/infiniband/x_0/ports/1", &[("state", "4: ACTIVE\n")]);
            root.files("sys/class/infiniband/x_0/ports/1", files);
            let reader = root.reader();
            let first = read(&reader, &Counters::new(&reader), "x_0", 1, None, None);
            WatchedPort { rail: RailId::new(hca, 1), first, is_bond, ..WatchedPort::default() }
        };
        let ionic = [("hw_counters/tx_bytes", "5\n")];
        // Counters of 32 bits that have counted 16 GiB.
        let full = [("counters/link_downed", "0\n"), ("counters/port_xmit_data", "4294967295\n")];
        let whole = [("counters/link_downed", "0\n"), ("counters/port_xmit_data", "9\n")];
        let ports = [
            port("ionic_0", &ionic, false),
            port("mlx4_0", &full, false),
            port("mlx5_0", &whole, false),
            port("mlx5_bond_0", &whole, true),
            port("usnic_0", &[], false),
        ];
        let lines: Vec<_> = unwatched(&ports).into_iter().map(|one| (one.severity, one.message)).collect();
        let wanted = [
            "ionic_0, usnic_0 count neither lost packets nor failed queue pairs here: the watcher cannot see these.",
            "mlx4_0, usnic_0 count no traffic here: the watcher cannot see a stall or an idle rail.",
            "mlx5_bond_0 is the HCA of a bond: the watcher cannot see that one link of a bond goes down while another one is up.",
        ];
        assert_eq!(lines, wanted.map(|line| (Severity::Info, line.to_owned())));
        assert!(unwatched(&ports[2..3]).is_empty());
    }

    #[test]
    fn one_of_two_ports_of_an_hca_is_told_alone() {
        let up = |rate| look("4: ACTIVE\n", rate, "0\n");
        let port = |port| WatchedPort {
            rail: RailId { is_one_of_several: true, ..RailId::new("mlx5_1", port) },
            first: up(FULL),
            ..WatchedPort::default()
        };
        let slow = up("50 Gb/sec (1X HDR)\n");
        let mut judge = Judge::patient(vec![port(1), port(2)], Duration::MAX);
        let found = judge.judge(Duration::from_secs(10), vec![up(FULL), slow]);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.message.starts_with("mlx5_1:2 runs at 50 Gb/sec"), "{found:?}");
        assert_eq!(found.about.ports, ["mlx5_1:2"]);
    }

    #[test]
    fn a_counter_at_its_end_is_told_once() {
        let counted = |count| look("4: ACTIVE\n", FULL, count);
        let looks = [
            [counted("254\n"), counted("255\n")],
            [counted("255\n"), counted("255\n")],
            [counted("255\n"), counted("255\n")],
            // Cleared, and full again.
            [counted("255\n"), counted("7\n")],
            [counted("255\n"), counted("255\n")],
        ];
        let told = |number, hca: &str| {
            let message =
                format!("Counters of {hca} have reached their maximum and no longer count: link_downed.");
            (number, Severity::Info, message)
        };
        assert_eq!(rates(&looks), [told(1, "mlx5_2"), told(2, "mlx5_1"), told(5, "mlx5_2")]);
    }

    #[test]
    fn each_counter_at_its_end_is_told() {
        let counted = |symbols: &str, downs: &str| {
            let root = FakeRoot::new();
            let files = [("counters/symbol_error", symbols), ("counters/link_downed", downs)];
            root.files("sys/class/infiniband/x_0/ports/1", &files);
            let reader = root.reader();
            read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
        };
        let first = counted("0\n", "0\n");
        let port = WatchedPort { rail: RailId::new("mlx5_1", 1), first, ..WatchedPort::default() };
        let mut judge = Judge::patient(vec![port], Duration::MAX);
        let mut at = Duration::ZERO;
        let mut said = |symbols, downs| {
            at += Duration::from_secs(10);
            let found = judge.judge(at, vec![counted(symbols, downs)]);
            let told = found.iter().filter(|one| one.message.contains("maximum"));
            let told = told.filter_map(|one| one.message.split_once(": "));
            told.map(|(_, names)| names.to_owned()).collect::<Vec<String>>()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(said("65535\n", "0\n"), ["symbol_error."]);
        assert_eq!(said("65535\n", "255\n"), ["link_downed."]);
        assert_eq!(said("65535\n", "255\n"), none);
    }

    /// Returns what is reported after each of these readings of one port, which are 10 seconds apart.
    fn gids(is_searched: bool, looks: &[(GidPlace, bool)]) -> Vec<(u64, String)> {
        let found = gid_findings(Some(is_searched), looks).into_iter();
        found.map(|(number, one)| (number, one.message)).collect()
    }

    fn gid_findings(is_searched: Option<bool>, looks: &[(GidPlace, bool)]) -> Vec<(u64, Finding)> {
        let gid = "::ffff:10.0.0.3".parse().unwrap();
        let gid = Some(UsedGid { index: 3, gid, kind: GidType::RoceV2, is_searched });
        let port =
            WatchedPort { rail: RailId::new("mlx5_3", 1), gid, first: active(), ..WatchedPort::default() };
        let mut judge = Judge::patient(vec![port], Duration::MAX);
        let mut all = Vec::new();
        for (number, (place, is_up)) in (1..).zip(looks) {
            let look = if *is_up { active() } else { look("1: DOWN\n", FULL, "0\n") };
            let look = PortLook { gid: Some(*place), ..look };
            let found = judge.judge(Duration::from_secs(number * 10), vec![look]);
            all.extend(found.into_iter().map(|one| (number, one)));
        }
        all
    }

    const HERE: (GidPlace, bool) = (GidPlace::InPlace, true);
    const MOVED: (GidPlace, bool) = (GidPlace::At(5), true);
    const GONE: (GidPlace, bool) = (GidPlace::Gone { has_address: false }, true);
    const LOST: (GidPlace, bool) = (GidPlace::Gone { has_address: true }, false);

    #[test]
    fn a_gid_that_moves_is_told_once_and_whether_the_job_follows() {
        let told = |end: &str| {
            format!("The GID of mlx5_3 (10.0.0.3) has moved from index 3, which the job uses, to 5: {end}.")
        };
        let job = [HERE, MOVED, MOVED];
        assert_eq!(gids(true, &job), [(2, told("NCCL searches for it, so new connections follow"))]);
        assert_eq!(
            gids(false, &job),
            [(2, told("NCCL does not search for it, and new connections use what is at index 3 now"))]
        );
    }

    /// A restart is only for a job that does not follow.
    #[test]
    fn the_fix_fits_to_whether_the_job_follows() {
        let gids = |is_searched| {
            let (_, found) = gid_findings(is_searched, &[HERE, MOVED]).remove(0);
            (found.fix.unwrap(), found.message)
        };
        assert_eq!(gids(Some(true)).0, FIX_OF_SEARCHED_GID);
        assert!(!FIX_OF_SEARCHED_GID.contains("Restart") && gids(Some(false)).0 == FIX_OF_GID);
        let (fix, message) = gids(None);
        assert!(
            fix == FIX_OF_UNKNOWN_NCCL && message.contains(" to 5: NCCL 2.21 and later search for it, "),
            "{message}"
        );
    }

    #[test]
    fn an_address_that_leaves_and_comes_back_is_told_once_each() {
        let gone = "The GID of mlx5_3 (10.0.0.3), which the job uses, is gone from index 3: no interface here still has this address.";
        let back = "The GID of mlx5_3 (10.0.0.3) is at index 3 again, after 30s.";
        let still = (GidPlace::Gone { has_address: true }, true);
        assert_eq!(
            gids(true, &[HERE, GONE, GONE, still, HERE, HERE]),
            [(2, gone.to_owned()), (5, back.to_owned())]
        );
    }

    #[test]
    fn a_gid_that_becomes_another_type_is_told() {
        let told = "The GID of mlx5_3 (10.0.0.3), which the job uses, is no longer RoCE v2 at index 3, and is so at no other index.";
        let back = "The GID of mlx5_3 (10.0.0.3) is at index 3 again, after 20s.";
        let retyped = (GidPlace::Retyped, true);
        assert_eq!(
            gids(false, &[HERE, retyped, retyped, HERE]),
            [(2, told.to_owned()), (4, back.to_owned())]
        );
    }

    #[test]
    fn a_port_of_an_hca_with_several_is_named_with_its_number() {
        let gid = "::ffff:10.0.0.3".parse().unwrap();
        let gid = Some(UsedGid { index: 3, gid, kind: GidType::RoceV2, is_searched: Some(true) });
        let port = |port| WatchedPort {
            rail: RailId { is_one_of_several: true, ..RailId::new("mlx5_3", port) },
            gid: gid.clone(),
            first: active(),
            ..WatchedPort::default()
        };
        let look = |place| PortLook { gid: Some(place), ..active() };
        let looks = vec![look(GidPlace::InPlace), look(GidPlace::At(5))];
        let mut judge = Judge::patient(vec![port(1), port(2)], Duration::MAX);
        let found = judge.judge(Duration::from_secs(10), looks);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.message.starts_with("The GID of mlx5_3:2 (10.0.0.3) has moved"), "{found:?}");
        assert_eq!(found.about.ports, ["mlx5_3:2"]);
    }

    /// It may move together with its link, and the look in which the link is back does not count.
    #[test]
    fn a_gid_that_moved_while_the_link_was_down_is_said_once_the_link_is_back() {
        let down = (GidPlace::At(5), false);
        let lines = gids(true, &[HERE, down, MOVED, MOVED, MOVED]);
        let moved = lines.iter().filter(|(_, line)| line.contains(" has moved from index 3"));
        assert_eq!(moved.map(|(look, _)| *look).collect::<Vec<_>>(), [4], "{lines:?}");
        let lines = gids(true, &[HERE, MOVED, LOST, HERE, HERE, HERE]);
        let (look, line) = lines.last().unwrap();
        assert!(*look == 5 && line.contains(" is at index 3 again"), "{lines:?}");
    }

    #[test]
    fn a_link_that_is_down_has_lost_no_gid() {
        let lines = gids(true, &[HERE, LOST, LOST, (GidPlace::InPlace, false), HERE]);
        assert!(lines.iter().all(|(_, line)| !line.contains("GID")), "{lines:?}");
    }
}
