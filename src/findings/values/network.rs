//! `NCCL_NET`, `NCCL_DEBUG`, and a job that would run without RDMA.

use super::{Subject, conf_file, shown};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::predict::Transport;
use crate::libraries::nccl::version::REWROTE_PARSERS;
use crate::plan::Fabric;

pub fn findings(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(network(subject));
    findings.extend(fallback(subject));
    findings.extend(debug(subject));
    findings
}

/// `NCCL_NET` names a network that NCCL will not find.
fn network(subject: &Subject) -> Option<Finding> {
    let setting = subject.user.get("NCCL_NET").filter(|setting| !setting.value.is_empty())?;
    let message = match subject.prediction().map(|prediction| &prediction.transport) {
        Some(Transport::Fails(message)) => message,
        // Without any RDMA device there is no prediction, but the outcome is clear.
        None if setting.value.eq_ignore_ascii_case("IB") => "no InfiniBand or RoCE device found",
        _ => return None,
    };
    let fix = match setting.value.eq_ignore_ascii_case("IB") {
        true => {
            "Find out why NCCL can use no HCA here (see the other findings). NCCL_NET=IB only turns the silent use of TCP into an error."
        }
        false => "Name IB or Socket, or the network of a net plugin that the image has; or remove NCCL_NET.",
    };
    Some(
        Finding::error(
            Id::NoNetwork,
            format!("{}: NCCL will end with \"{}\".", shown(setting), message.trim_end_matches('.')),
        )
        .about_variables(["NCCL_NET"])
        .with_fix(fix),
    )
}

/// HCAs are usable, but the user's `NCCL_NET` keeps NCCL from them. (Other findings report what
/// is missing in the image.)
fn fallback(subject: &Subject) -> Option<Finding> {
    let setting =
        subject.user.get("NCCL_NET").filter(|setting| setting.value.eq_ignore_ascii_case("Socket"))?;
    matches!(subject.plan.fabric, Fabric::Verbs | Fabric::Plugin(_)).then(|| {
        Finding::warning(
            Id::RunsOnTcp,
            format!(
                "{}: the RDMA devices are usable, and {} will run on TCP all the same.",
                shown(setting),
                subject.nccl()
            ),
        )
        .about_variables(["NCCL_NET"])
        .with_fix("Remove NCCL_NET, if that is not on purpose.")
    })
}

/// `ncclDebugInit` (`src/debug.cc`) compares without regard to case.
const DEBUG: &[&str] = &["VERSION", "WARN", "INFO", "ABORT", "TRACE"];

fn debug(subject: &Subject) -> Option<Finding> {
    let setting = subject.user.get("NCCL_DEBUG").filter(|setting| !setting.value.is_empty())?;
    // White space around it is dropped since 2.30.
    let value = if subject.version() >= REWROTE_PARSERS { setting.value.trim() } else { &setting.value };
    let is_known = DEBUG.iter().any(|level| value.eq_ignore_ascii_case(level));
    (!is_known && !conf_file::is_cause(setting)).then(|| {
        Finding::warning(
            Id::DebugLevel,
            format!("{} is not a level that NCCL knows, so NCCL logs nothing.", shown(setting)),
        )
        .about_variables(["NCCL_DEBUG"])
        .with_fix(format!("Write one of {}.", DEBUG.join(", ")))
    })
}
