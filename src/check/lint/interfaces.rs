//! `NCCL_SOCKET_IFNAME`, and the interface that comes of it.

use super::{Subject, lists, shown};
use crate::facts::settings::UserSetting;
use crate::nccl::interfaces;
use crate::nccl::list::Pattern;
use crate::nccl::predict::Bootstrap;
use crate::plan::{Fabric, Finding};

const VARIABLE: &str = "NCCL_SOCKET_IFNAME";

pub fn findings(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    if subject.facts.net.interfaces.is_empty() {
        return findings;
    }
    if let Some(setting) = subject.user.get(VARIABLE).filter(|setting| !setting.value.is_empty()) {
        findings.extend(of_list(subject, setting));
    }
    findings.extend(comm_id(subject));
    findings.extend(unreachable(subject));
    findings
}

fn of_list(subject: &Subject, setting: &UserSetting) -> Vec<Finding> {
    // `ncclFindInterfaces` looks at its length.
    if setting.value.len() == 1 {
        let message =
            format!("{}: a value of one character is as if unset, and NCCL chooses itself.", shown(setting));
        return vec![
            Finding::warning("one-character", message)
                .with_fix(format!("Write {VARIABLE}=={}.", setting.value)),
        ];
    }
    let pattern = Pattern::of_interfaces(&setting.value, subject.version());
    let interfaces = &subject.facts.net.interfaces;
    let with_address: Vec<&str> = interfaces
        .iter()
        .filter(|interface| !interface.addresses.is_empty())
        .map(|interface| interface.name.as_str())
        .collect();
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(lists::separators(&pattern, setting));
    findings.extend(lists::repeated_signs(&pattern, setting));
    findings.extend(lists::prefixes(&pattern, setting, &with_address));
    findings.extend(lists::dropped(&pattern, setting, &subject.nccl()));
    let found = interfaces::first(&subject.facts.net, of_user(subject), subject.version());
    if found.is_err() {
        findings.push(
            Finding::error(
                "stale-interface",
                format!(
                    "{} matches no interface that {} takes (with an address are {}); it will end with \"no socket interface found\".",
                    shown(setting),
                    subject.nccl(),
                    with_address.join(", ")
                ),
            )
            .with_fix(format!("Remove {VARIABLE}, or name one of these that is up.")),
        );
    }
    findings
}

fn of_user<'a>(subject: &'a Subject) -> impl Fn(&str) -> Option<&'a str> {
    |name| subject.user.get(name).map(|setting| setting.value.as_str())
}

/// `NCCL_COMM_ID` decides on the interface by its subnet.
fn comm_id(subject: &Subject) -> Option<Finding> {
    let setting = subject.user.get("NCCL_COMM_ID")?;
    let failure = interfaces::bootstrap(&subject.facts.net, of_user(subject), subject.version()).err()?;
    let message = failure.message()?;
    Some(
        Finding::error(
            "comm-id",
            format!("{} fits no address here: NCCL will end with \"{message}\".", shown(setting)),
        )
        .with_fix("Remove NCCL_COMM_ID; torchrun and MPI tell the processes of each other without it."),
    )
}

/// Where the job's other nodes cannot come from.
fn unreachable(subject: &Subject) -> Option<Finding> {
    let Some(Bootstrap::On(endpoint)) = subject.prediction().map(|prediction| &prediction.bootstrap) else {
        return None;
    };
    let is_local = endpoint.address.is_loopback()
        || ["docker", "virbr"].iter().any(|prefix| endpoint.interface.starts_with(prefix));
    // Without RDMA the job may be of one node.
    if !is_local || !matches!(subject.plan.fabric, Fabric::Verbs) {
        return None;
    }
    let why = match subject.user.get(VARIABLE) {
        Some(setting) => format!(", because of {}", shown(setting)),
        None => String::new(),
    };
    Some(
        Finding::warning(
            "local-interface",
            format!(
                "NCCL's processes will meet on {} {}{why}, which no other node can reach: a job of several nodes ends with \"Connection refused\".",
                endpoint.interface, endpoint.address
            ),
        )
        .with_fix(format!("Set {VARIABLE} to the interface that the nodes reach each other through; ^ replaces NCCL's own exclusion of lo and docker.")),
    )
}
