//! What the probe of a port means for the job.

use std::cmp::Ordering;

use nix::errno::Errno;

use super::check::{Check, Outcome};
use super::kinds;
use crate::findings::memlock::WITHOUT_HANDOVER;
use crate::text::{amount, microseconds};
use crate::verbs::failure::Failure;
use crate::verbs::port_test::{DeviceProbe, PortTest, ProbeEnd, ProbeResult, StepResult};
use crate::verbs::step::Step;

pub(crate) const OPEN: &str = "verbs-open";
pub(crate) const MEMORY: &str = "verbs-memory";
pub(crate) const LOOPBACK: &str = "verbs-loopback";

/// The checks, in order.
const IDS: [&str; 3] = [OPEN, MEMORY, LOOPBACK];

/// Returns three checks for each port: those after a failed one are skipped.
pub(crate) fn checks(wanted: &PortTest, result: &ProbeResult) -> Vec<Check> {
    match result {
        Ok(probe) if probe.no_provider => {
            let why = no_provider(wanted.driver.as_deref());
            IDS.iter().map(|id| skipped(wanted, id, &why)).collect()
        }
        Ok(probe) => of_probe(wanted, probe),
        Err(end) => of_end(wanted, end),
    }
}

/// Returns why a device was not tested. This says nothing about the device or the image.
fn no_provider(driver: Option<&str>) -> String {
    match driver {
        Some(driver) => format!("this binary has no provider for {driver}"),
        None => "this binary has no provider for the device".to_owned(),
    }
}

fn check(wanted: &PortTest, id: &str, outcome: Outcome) -> Check {
    Check { subject: Some(wanted.name()), ..kinds::check(id, outcome) }
}

fn skipped(wanted: &PortTest, id: &str, why: &str) -> Check {
    Check { message: Some(why.to_owned()), ..check(wanted, id, Outcome::Skipped) }
}

/// Returns the check that a step belongs to.
fn id_of(step: Step) -> &'static str {
    match step {
        Step::ListDevices | Step::OpenNode | Step::OpenDevice | Step::QueryDevice => OPEN,
        Step::AllocDomain | Step::Map | Step::Register => MEMORY,
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
        let steps: Vec<&StepResult> = probe.steps.iter().filter(|one| id_of(one.step) == id).collect();
        let error = steps.iter().find_map(|one| Some((one.step, one.error.as_ref()?)));
        failed = error.is_some();
        let mut check = match (error, &probe.no_loopback) {
            (Some((step, error)), _) => Check {
                message: Some(format!("{step} failed: {error}.{}", explained(wanted, step, error, probe))),
                fix: fix(wanted, step, error, probe),
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
        check.took_us = steps.iter().map(|one| one.took_us).sum();
        checks.push(check);
    }
    checks
}

/// Returns what is wrong with the MTU that the port uses.
fn mtu(wanted: &PortTest, probe: &DeviceProbe) -> Option<String> {
    // 0 stands for a number that verbs.h does not define.
    let known = wanted.allowed_mtu.filter(|_| probe.active_mtu > 0 && probe.max_mtu > 0);
    let allowed = known?.min(probe.max_mtu);
    let what = match probe.active_mtu.cmp(&allowed) {
        Ordering::Equal => return None,
        Ordering::Less => "packets are smaller than they could be, which reduces bandwidth",
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
            let mut steps = probe.steps.iter().filter(|_| probe.registered > 0);
            let step = steps.find(|one| one.step == Step::Register);
            lines.extend(
                step.map(|s| {
                    format!("{} registered in {}", amount(probe.registered), microseconds(s.took_us))
                }),
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
            lines.extend(
                probe.latency_ns.map(|ns| format!("8 bytes there and back in {}", microseconds(ns / 1000))),
            );
            lines.extend(probe.bandwidth_mbps.map(|mbps| format!("{mbps} Mbit/s within the device")));
        }
    }
    lines
}

fn is_memlock(step: Step, error: &Failure) -> bool {
    step.pins() && error.errno() == Some(Errno::ENOMEM)
}

fn explained(wanted: &PortTest, step: Step, error: &Failure, probe: &DeviceProbe) -> String {
    match (probe.memlock, wanted.cma_outside_areas) {
        _ if !is_memlock(step, error) => String::new(),
        (Some(bytes), _) => format!(" Only {} of memory can be pinned (RLIMIT_MEMLOCK).", amount(bytes)),
        (None, Some(bytes)) => format!(
            " RLIMIT_MEMLOCK is unlimited. The kernel keeps {} of memory for kexec handover (KHO), which cannot be pinned, and the rest may be full.",
            amount(bytes)
        ),
        (None, None) => {
            " RLIMIT_MEMLOCK is unlimited, so the device or the node is out of memory.".to_owned()
        }
    }
}

fn fix(wanted: &PortTest, step: Step, error: &Failure, probe: &DeviceProbe) -> Option<String> {
    let fix = match (step, error) {
        _ if is_memlock(step, error) => match (probe.memlock, wanted.cma_outside_areas) {
            (Some(_), _) => {
                "Raise the limit (Docker: --ulimit memlock=-1:-1) or add the capability IPC_LOCK."
            }
            (None, Some(_)) => WITHOUT_HANDOVER,
            (None, None) => {
                "Look for what uses the node's memory, and in the kernel's log (dmesg on the host)."
            }
        },
        (Step::Map, _) => "Choose a smaller --size.",
        (Step::OpenNode, error) => match error.errno()? {
            Errno::ENOENT => "Give the container the device's node, below /dev/infiniband.",
            Errno::EACCES | Errno::EPERM => {
                "Let the container's device rules and the node's mode allow its user to read and write it."
            }
            _ => return None,
        },
        (Step::QueryPort, Failure::Port(_)) => {
            "Check the cable, the switch and the interface (ip link) of the port."
        }
        (Step::QueryGid | Step::ToReceive, _) => {
            "Check which GID index has an address of this container: rdma-init plan --evidence."
        }
        _ => return None,
    };
    Some(fix.to_owned())
}

fn of_end(wanted: &PortTest, end: &ProbeEnd) -> Vec<Check> {
    // Steps are in the order of the checks, so the checks before the current step have passed.
    let at = end.during().map_or(OPEN, id_of);
    let place = IDS.iter().position(|id| *id == at).unwrap_or(0);
    let of = |(index, id): (usize, &&str)| match index.cmp(&place) {
        Ordering::Less => check(wanted, id, Outcome::Passed),
        Ordering::Equal => Check { message: Some(format!("{end}.")), ..check(wanted, id, Outcome::Failed) },
        Ordering::Greater => skipped(wanted, id, "an earlier check of this port failed"),
    };
    IDS.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::port_test::{DEFAULT_SIZE, DEFAULT_TIME, Marks};

    fn wanted() -> PortTest {
        PortTest {
            device: "mlx5_0".into(),
            port: 1,
            gid_index: Some(3),
            size: DEFAULT_SIZE,
            each: DEFAULT_TIME,
            allowed_mtu: Some(1024),
            marks: Marks::default(),
            driver: Some("ionic_rdma".into()),
            cma_outside_areas: None,
        }
    }

    fn step(step: Step, error: Option<Failure>) -> StepResult {
        StepResult { step, took_us: 12_000, error }
    }

    fn outcomes(checks: &[Check]) -> Vec<Outcome> {
        checks.iter().map(|check| check.outcome).collect()
    }

    #[test]
    fn no_room_under_the_limit_is_said_with_the_limit() {
        let probe = DeviceProbe {
            steps: vec![step(Step::OpenDevice, None), step(Step::Register, Some(Errno::ENOMEM.into()))],
            memlock: Some(65536),
            ..DeviceProbe::default()
        };
        let checks = checks(&wanted(), &Ok(Box::new(probe)));
        assert_eq!(outcomes(&checks), [Outcome::Passed, Outcome::Failed, Outcome::Skipped]);
        let message = checks[1].message.as_deref().unwrap();
        assert!(message.contains("ibv_reg_mr failed: ENOMEM"), "{message}");
        assert!(message.contains("Only 64 KiB of memory can be pinned"), "{message}");
        assert!(checks[1].fix.as_deref().unwrap().contains("memlock"));
    }

    #[test]
    fn without_a_limit_it_is_not_the_limit() {
        let probe = DeviceProbe {
            steps: vec![step(Step::Register, Some(Errno::ENOMEM.into()))],
            ..DeviceProbe::default()
        };
        for (cma_outside_areas, said, fix) in [
            (None, "so the device or the node is out of memory", "dmesg"),
            (Some(9 << 30), "keeps 9 GiB", "kho=off"),
        ] {
            let wanted = PortTest { cma_outside_areas, ..wanted() };
            let check = checks(&wanted, &Ok(Box::new(probe.clone()))).remove(1);
            let (message, told) = (check.message.unwrap(), check.fix.unwrap());
            assert!(
                message.contains(said) && told.contains(fix) && !told.contains("ulimit"),
                "{message} {told}"
            );
        }
    }

    #[test]
    fn an_mtu_that_the_interface_does_not_have_is_a_warning() {
        for (active_mtu, max_mtu, wanted_text) in [
            (1024, 4096, None),
            (4096, 4096, Some("MTU of 4096, while its interface allows 1024: larger packets may be lost")),
            (512, 4096, Some("allows 1024: packets are smaller than they could be, which reduces bandwidth")),
            (512, 512, None),
            (0, 4096, None),
        ] {
            let probe = DeviceProbe { verified: true, active_mtu, max_mtu, ..DeviceProbe::default() };
            let check = checks(&wanted(), &Ok(Box::new(probe))).remove(2);
            assert_eq!(check.outcome == Outcome::Warning, wanted_text.is_some(), "{active_mtu} {max_mtu}");
            assert!(check.message.unwrap_or_default().contains(wanted_text.unwrap_or_default()));
        }
    }

    #[test]
    fn what_passed_shows_its_figures() {
        let probe = DeviceProbe {
            steps: vec![step(Step::Register, None)],
            registered: 64 << 20,
            verified: true,
            latency_ns: Some(2_100),
            ..DeviceProbe::default()
        };
        let checks = checks(&wanted(), &Ok(Box::new(probe)));
        assert_eq!(outcomes(&checks), [Outcome::Passed; 3]);
        assert_eq!(checks[1].evidence, ["64 MiB registered in 12 ms"]);
        assert!(checks[2].evidence.contains(&"8 bytes there and back in 2 us".to_owned()));
    }

    #[test]
    fn a_process_that_ended_fails_where_it_was() {
        let hung = ProbeEnd::Hung { after_ms: 5000, during: Some(Step::Register), gone: true };
        let checks = checks(&wanted(), &Err(hung));
        assert_eq!(outcomes(&checks), [Outcome::Passed, Outcome::Failed, Outcome::Skipped]);
        assert_eq!(
            checks[1].message.as_deref(),
            Some("the probe did not finish within 5.0 s and was killed, during ibv_reg_mr.")
        );
    }

    #[test]
    fn a_device_that_this_binary_cannot_open_is_not_at_fault() {
        let probe = DeviceProbe { no_provider: true, ..DeviceProbe::default() };
        let checks = checks(&wanted(), &Ok(Box::new(probe)));
        assert_eq!(outcomes(&checks), [Outcome::Skipped; 3]);
        assert_eq!(checks[0].message.as_deref(), Some("this binary has no provider for ionic_rdma"));
        assert_eq!(no_provider(None), "this binary has no provider for the device");
    }

    #[test]
    fn a_device_without_connections_is_not_at_fault() {
        let probe = DeviceProbe { no_loopback: Some("it has none".into()), ..DeviceProbe::default() };
        let checks = checks(&wanted(), &Ok(Box::new(probe)));
        assert_eq!(outcomes(&checks), [Outcome::Passed, Outcome::Passed, Outcome::Skipped]);
    }
}
