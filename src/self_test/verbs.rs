//! What the probe of a port says about the job.

use std::cmp::Ordering;

use super::check::{Check, Outcome};
use super::kinds;
use crate::findings::memlock::amount;
use crate::verbs::port_test::{DeviceProbe, PortTest, ProbeResult, Step};

pub const OPEN: &str = "verbs-open";
pub const MEMORY: &str = "verbs-memory";
pub const LOOPBACK: &str = "verbs-loopback";

/// The steps of the first two checks; all other steps belong to the loopback.
const OPENING: &[&str] = &["ibv_get_device_list", "open", "ibv_open_device", "ibv_query_device"];
const REGISTERING: &[&str] = &["ibv_alloc_pd", "mmap", "ibv_reg_mr"];

/// The checks, in order.
const IDS: [&str; 3] = [OPEN, MEMORY, LOOPBACK];

/// Three checks for each port: those after one that failed are skipped.
pub fn checks(wanted: &PortTest, result: &ProbeResult) -> Vec<Check> {
    match result {
        ProbeResult::Done(probe) => of_probe(wanted, probe),
        ended => of_end(wanted, ended),
    }
}

fn check(wanted: &PortTest, id: &str, outcome: Outcome) -> Check {
    Check { subject: Some(wanted.name()), ..kinds::check(id, outcome) }
}

fn skipped(wanted: &PortTest, id: &str, why: &str) -> Check {
    Check { message: Some(why.to_owned()), ..check(wanted, id, Outcome::Skipped) }
}

/// The check that a step belongs to.
fn id_of(step: &str) -> &'static str {
    match step {
        _ if OPENING.contains(&step) => OPEN,
        _ if REGISTERING.contains(&step) => MEMORY,
        _ => LOOPBACK,
    }
}

fn of_probe(wanted: &PortTest, probe: &DeviceProbe) -> Vec<Check> {
    let mut failed = false;
    let mut checks = Vec::new();
    for id in IDS {
        if failed {
            checks.push(skipped(wanted, id, "an earlier check of this port failed"));
            continue;
        }
        let steps: Vec<&Step> = probe.steps.iter().filter(|step| id_of(&step.name) == id).collect();
        let error = steps.iter().find_map(|step| Some((step.name.as_str(), step.error.as_deref()?)));
        failed = error.is_some();
        let mut check = match (error, &probe.no_loopback) {
            (Some((step, error)), _) => Check {
                message: Some(format!("{step} failed: {error}.{}", explained(step, error, probe))),
                fix: fix(step, error),
                ..check(wanted, id, Outcome::Failed)
            },
            (None, Some(why)) if id == LOOPBACK => skipped(wanted, id, why),
            (None, _) => check(wanted, id, Outcome::Passed),
        };
        if id == LOOPBACK
            && check.outcome == Outcome::Passed
            && let Some(warning) = mtu(wanted, probe)
        {
            check.outcome = Outcome::Warning;
            check.message = Some(warning);
            check.fix = Some("Set the MTU of the interface and of the fabric; the port's MTU follows (ip link, ibv_devinfo).".to_owned());
        }
        check.evidence = evidence(id, probe);
        check.took_us = steps.iter().map(|step| step.took_us).sum();
        checks.push(check);
    }
    checks
}

/// What is wrong with the MTU that the port works with.
fn mtu(wanted: &PortTest, probe: &DeviceProbe) -> Option<String> {
    // 0 is a number that verbs.h does not name.
    let known = wanted.allowed_mtu.filter(|_| probe.active_mtu > 0 && probe.max_mtu > 0);
    let allowed = known?.min(probe.max_mtu);
    let what = match probe.active_mtu.cmp(&allowed) {
        Ordering::Equal => return None,
        Ordering::Less => "packets are smaller than they could be, which costs bandwidth",
        Ordering::Greater => "larger packets may be lost",
    };
    Some(format!(
        "The port works with an MTU of {}, while its interface allows {allowed}: {what}.",
        probe.active_mtu
    ))
}

fn evidence(id: &str, probe: &DeviceProbe) -> Vec<String> {
    let mut lines = Vec::new();
    match id {
        OPEN => lines.extend(probe.firmware.as_ref().map(|version| format!("firmware {version}"))),
        MEMORY => {
            let step = probe.step("ibv_reg_mr").filter(|_| probe.registered > 0);
            lines.extend(
                step.map(|s| format!("{} registered in {}", amount(probe.registered), time(s.took_us))),
            );
        }
        _ => {
            if let Some(state) = &probe.state {
                lines.push(format!("port {state}, MTU {} of {}", probe.active_mtu, probe.max_mtu));
            }
            lines.extend(probe.gid.as_ref().map(|gid| format!("GID {gid}")));
            if probe.verified {
                lines.push("an RDMA write and a message arrived unchanged".to_owned());
            }
            lines.extend(probe.latency_ns.map(|ns| format!("8 bytes there and back in {}", time(ns / 1000))));
            lines.extend(probe.bandwidth_mbps.map(|mbps| format!("{mbps} Mbit/s within the device")));
        }
    }
    lines
}

/// `850 us`, `12 ms`, `2.1 s`.
pub fn time(microseconds: u64) -> String {
    match microseconds {
        0..1000 => format!("{microseconds} us"),
        1000..1_000_000 => format!("{} ms", microseconds / 1000),
        _ => format!("{}.{} s", microseconds / 1_000_000, microseconds / 100_000 % 10),
    }
}

/// The calls that pin memory: their ENOMEM comes from the limit.
const PINNING: &[&str] = &["ibv_reg_mr", "ibv_create_cq", "ibv_create_qp"];

fn is_memlock(step: &str, error: &str) -> bool {
    PINNING.contains(&step) && error.starts_with("ENOMEM")
}

fn explained(step: &str, error: &str, probe: &DeviceProbe) -> String {
    match probe.memlock {
        Some(bytes) if is_memlock(step, error) => {
            format!(" Only {} of memory can be pinned (RLIMIT_MEMLOCK).", amount(bytes))
        }
        None if is_memlock(step, error) => {
            " RLIMIT_MEMLOCK is unlimited, so the device or the node is out of memory.".to_owned()
        }
        _ => String::new(),
    }
}

fn fix(step: &str, error: &str) -> Option<String> {
    let fix = match step {
        _ if is_memlock(step, error) => {
            "Raise the limit (Docker: --ulimit memlock=-1:-1) or add the capability IPC_LOCK."
        }
        "mmap" => "Choose a smaller --size.",
        "open" if error.contains("ENOENT") => "Give the container the device's node, below /dev/infiniband.",
        "open" if error.contains("EACCES") || error.contains("EPERM") => {
            "Let the container's device rules and the node's mode allow its user to read and write it."
        }
        "ibv_query_port" if error.starts_with("the port is") => {
            "Look at the cable, the switch and the interface (ip link) of the port."
        }
        "ibv_query_gid" | "ibv_modify_qp RTR" => {
            "See which slot holds an address of this container: rdma-init plan --evidence."
        }
        _ => return None,
    };
    Some(fix.to_owned())
}

fn of_end(wanted: &PortTest, result: &ProbeResult) -> Vec<Check> {
    // Steps come in the order of the checks, so the checks before the current step have passed.
    let at = during(result).map_or(OPEN, id_of);
    let place = IDS.iter().position(|id| *id == at).unwrap_or(0);
    let of = |(index, id): (usize, &&str)| match index.cmp(&place) {
        Ordering::Less => check(wanted, id, Outcome::Passed),
        Ordering::Equal => {
            Check { message: Some(format!("{}.", told(result))), ..check(wanted, id, Outcome::Failed) }
        }
        Ordering::Greater => skipped(wanted, id, "an earlier check of this port failed"),
    };
    IDS.iter().enumerate().map(of).collect()
}

/// The step that a process was at when it ended without a result.
fn during(result: &ProbeResult) -> Option<&str> {
    match result {
        ProbeResult::Crashed { during, .. }
        | ProbeResult::Exited { during, .. }
        | ProbeResult::Hung { during, .. }
        | ProbeResult::Garbled { during } => during.as_deref(),
        ProbeResult::NotStarted { .. } | ProbeResult::Done(_) => None,
    }
}

/// How the process that probed a port ended.
pub fn told(result: &ProbeResult) -> String {
    let during = during(result).map(|step| format!(", during {step}")).unwrap_or_default();
    match result {
        ProbeResult::Crashed { signal, .. } => format!("the probe was killed by {signal}{during}"),
        ProbeResult::Exited { code, .. } => {
            format!("the probe ended with code {code} and reported nothing{during}")
        }
        ProbeResult::Hung { after_ms, gone, .. } => {
            let end = if *gone { "was killed" } else { "does not end even when killed" };
            format!("the probe did not finish within {} and {end}{during}", time(after_ms * 1000))
        }
        ProbeResult::Garbled { .. } => format!("the probe's report makes no sense{during}"),
        ProbeResult::NotStarted { error } => format!("no process could be started for it: {error}"),
        ProbeResult::Done(_) => "the probe is done".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::port_test::{DEFAULT_SIZE, DEFAULT_TIME};

    fn wanted() -> PortTest {
        PortTest {
            device: "mlx5_0".into(),
            port: 1,
            gid_index: Some(3),
            size: DEFAULT_SIZE,
            each: DEFAULT_TIME,
            allowed_mtu: Some(1024),
        }
    }

    fn step(name: &str, error: Option<&str>) -> Step {
        Step { name: name.into(), took_us: 12_000, error: error.map(Into::into) }
    }

    fn outcomes(checks: &[Check]) -> Vec<Outcome> {
        checks.iter().map(|check| check.outcome).collect()
    }

    #[test]
    fn no_room_under_the_limit_is_said_with_the_limit() {
        let probe = DeviceProbe {
            steps: vec![
                step("ibv_open_device", None),
                step("ibv_reg_mr", Some("ENOMEM (Cannot allocate memory)")),
            ],
            memlock: Some(65536),
            ..DeviceProbe::default()
        };
        let checks = checks(&wanted(), &ProbeResult::Done(Box::new(probe)));
        assert_eq!(outcomes(&checks), [Outcome::Passed, Outcome::Failed, Outcome::Skipped]);
        let message = checks[1].message.as_deref().unwrap();
        assert!(message.contains("ibv_reg_mr failed: ENOMEM"), "{message}");
        assert!(message.contains("Only 64 KiB of memory can be pinned"), "{message}");
        assert!(checks[1].fix.as_deref().unwrap().contains("memlock"));
    }

    #[test]
    fn an_mtu_that_the_interface_does_not_have_is_a_warning() {
        for (active_mtu, max_mtu, wanted_text) in [
            (1024, 4096, None),
            (4096, 4096, Some("MTU of 4096, while its interface allows 1024: larger packets may be lost")),
            (512, 4096, Some("allows 1024: packets are smaller than they could be, which costs bandwidth")),
            (512, 512, None),
            (0, 4096, None),
        ] {
            let probe = DeviceProbe { verified: true, active_mtu, max_mtu, ..DeviceProbe::default() };
            let check = checks(&wanted(), &ProbeResult::Done(Box::new(probe))).remove(2);
            assert_eq!(check.outcome == Outcome::Warning, wanted_text.is_some(), "{active_mtu} {max_mtu}");
            assert!(check.message.unwrap_or_default().contains(wanted_text.unwrap_or_default()));
        }
    }

    #[test]
    fn what_passed_shows_its_figures() {
        let probe = DeviceProbe {
            steps: vec![step("ibv_reg_mr", None)],
            registered: 64 << 20,
            verified: true,
            latency_ns: Some(2_100),
            ..DeviceProbe::default()
        };
        let checks = checks(&wanted(), &ProbeResult::Done(Box::new(probe)));
        assert_eq!(outcomes(&checks), [Outcome::Passed; 3]);
        assert_eq!(checks[1].evidence, ["64 MiB registered in 12 ms"]);
        assert!(checks[2].evidence.contains(&"8 bytes there and back in 2 us".to_owned()));
    }

    #[test]
    fn a_process_that_ended_fails_where_it_was() {
        let hung = ProbeResult::Hung { after_ms: 5000, during: Some("ibv_reg_mr".into()), gone: true };
        let checks = checks(&wanted(), &hung);
        assert_eq!(outcomes(&checks), [Outcome::Passed, Outcome::Failed, Outcome::Skipped]);
        assert_eq!(
            checks[1].message.as_deref(),
            Some("the probe did not finish within 5.0 s and was killed, during ibv_reg_mr.")
        );
    }

    #[test]
    fn a_device_without_connections_is_not_at_fault() {
        let probe = DeviceProbe { no_loopback: Some("it has none".into()), ..DeviceProbe::default() };
        let checks = checks(&wanted(), &ProbeResult::Done(Box::new(probe)));
        assert_eq!(outcomes(&checks), [Outcome::Passed, Outcome::Passed, Outcome::Skipped]);
    }
}
