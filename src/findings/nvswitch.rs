//! HCAs that connect, or may connect, to the machine's NVSwitches, but are used.

use crate::fabric::{Candidate, NvSwitch, nvswitch};
use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST as VARIABLE;
use crate::plan::Context;

/// Returns the names of the used ports that connect, or may connect, to NVSwitches. Other findings do not
/// mention them.
pub(super) fn of_nvswitches(facts: &Facts, ports: &[Candidate]) -> Vec<String> {
    let suspects = nvswitch::suspects(facts, ports);
    let known = in_use(facts, ports).into_iter().map(|(port, _)| port);
    suspects.into_iter().chain(known).map(Candidate::name).collect()
}

pub(super) fn findings(context: &Context, ports: &[Candidate]) -> Vec<Finding> {
    let is_chosen = context.uses_verbs() && !context.leaves_alone(VARIABLE);
    let suspects = if is_chosen { nvswitch::suspects(context.facts, ports) } else { Vec::new() };
    taken(context, ports).into_iter().chain(suspected(&suspects)).collect()
}

/// Returns the ports that connect to NVSwitches, but are used, because the user names them or no setting
/// names the HCAs.
fn in_use<'a, 'b>(facts: &Facts, ports: &'b [Candidate<'a>]) -> Vec<(&'b Candidate<'a>, NvSwitch)> {
    let used = ports.iter().filter(|port| port.is_used());
    used.filter_map(|port| Some((port, nvswitch::sign(facts, port.hca)?))).collect()
}

fn taken(context: &Context, ports: &[Candidate]) -> Option<Finding> {
    let taken = in_use(context.facts, ports);
    let (first, sign) = taken.first()?;
    let names: Vec<String> = taken.iter().map(|(port, _)| port.name()).collect();
    let is_taken = |port: &&Candidate| names.contains(&port.name());
    let mut others: Vec<&str> = ports
        .iter()
        .filter(|port| port.is_used() && !is_taken(port))
        .map(|port| port.hca.name.as_str())
        .collect();
    others.dedup();
    let (who, fix) = match context.user.get(VARIABLE) {
        Some(setting) => (
            format!("{VARIABLE}={} ({})", setting.value, setting.origin),
            format!("Remove {VARIABLE}{}.", or_write(&others)),
        ),
        None if others.is_empty() => ("NCCL".to_owned(), format!("Set {VARIABLE} to the other HCAs.")),
        None => ("NCCL".to_owned(), format!("Set {VARIABLE}=={}.", others.join(","))),
    };
    let message = format!(
        "{who} takes {}, which {} to the NVSwitches of this machine, not to a network ({}: {}): connections to other nodes fail over {}.",
        names.join(", "),
        if names.len() == 1 { "leads" } else { "lead" },
        first.hca.name,
        sign,
        if names.len() == 1 { "it" } else { "them" },
    );
    let is_known = |sign: &NvSwitch| matches!(sign, NvSwitch::ProductData | NvSwitch::SameNic(_));
    let is_all = taken.len() == ports.iter().filter(|port| port.is_used()).count();
    let finding = match is_all && taken.iter().all(|(_, sign)| is_known(sign)) {
        true => Finding::error(Id::NvswitchHca, message),
        false => Finding::warning(Id::NvswitchHca, message),
    };
    Some(finding.about_variables([VARIABLE]).about_ports(names).with_fix(fix))
}

/// Returns advice to list the other HCAs, if there are any.
fn or_write(others: &[&str]) -> String {
    match others {
        [] => String::new(),
        some => format!(", or write {VARIABLE}=={}", some.join(",")),
    }
}

fn suspected(suspects: &[&Candidate]) -> Option<Finding> {
    let names: Vec<String> = suspects.iter().map(|port| port.name()).collect();
    let rate = &suspects.first()?.port.rate;
    let message = format!(
        "{VARIABLE} takes {} ({rate}), which may connect to the NVSwitches of this machine, not to a network: the other HCAs are enough for the GPUs, and only root can read the VPD that would prove it.",
        names.join(", ")
    );
    Some(Finding::warning(Id::NvswitchHca, message).about_variables([VARIABLE]).about_ports(names).with_fix(format!(
        "Look for SMDL=SW_MNG in their VPD (`lspci -vv` as root on the node). If it is there, or if they are for storage, name only the other HCAs in {VARIABLE}; if it is not, and they are rails, name all of them."
    )))
}
