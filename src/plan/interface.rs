//! `NCCL_SOCKET_IFNAME`: the interface of the bootstrap and of TCP.

use super::remark::Remark;
use super::rule::{Rule, Trial};
use super::setting::Proposal;
use super::{Context, Notes};
use crate::fabric::interface::{InterfaceChoice, tries};
use crate::facts::Facts;
use crate::libraries::nccl::list::Pattern;
use crate::libraries::nccl::version::NEWEST;

pub(crate) const VARIABLE: &str = "NCCL_SOCKET_IFNAME";

/// Returns the interface from the facts, with a note of what was tried.
pub(crate) fn choose(facts: &Facts, notes: &mut Notes) -> Option<InterfaceChoice> {
    let mut chosen = None;
    for (way, choice) in tries(facts) {
        let found = choice.as_ref().map(|choice| choice.name.clone());
        notes.tried(VARIABLE, Trial::Interface(way, found));
        chosen = choice;
    }
    chosen
}

pub(crate) fn propose(
    context: &Context,
    choice: Option<&InterfaceChoice>,
    notes: &mut Notes,
) -> Vec<Proposal> {
    if context.leaves_alone(VARIABLE) {
        return Vec::new();
    }
    let Context { facts, profile, .. } = context;
    let constant = profile.variables.get(VARIABLE);
    let published =
        |rule: Rule, constant: &str| vec![Proposal::from_profile(&profile.name, VARIABLE, constant, rule)];
    match (choice, constant) {
        (Some(choice), Some(constant)) if selected(facts, constant) == [choice.name.as_str()] => {
            published(Rule::PublishedInterface(choice.clone()), constant)
        }
        (None, Some(constant)) if !selected(facts, constant).is_empty() => {
            published(Rule::PublishedInterfaceIsThere, constant)
        }
        (Some(choice), constant) => {
            if let Some(constant) = constant {
                notes.tried(VARIABLE, Trial::PublishedInterface(constant.clone()));
                notes.remark(Remark::PublishedInterfaceDiffers {
                    published: constant.clone(),
                    chosen: choice.clone(),
                });
            }
            let rule = Rule::Interface(choice.because);
            vec![Proposal::from_facts(VARIABLE, pattern_for(facts, &choice.name), rule)]
        }
        (None, constant) => {
            notes.remark(Remark::NoInterface { published: constant.cloned() });
            Vec::new()
        }
    }
}

fn selected<'a>(facts: &'a Facts, pattern: &str) -> Vec<&'a str> {
    let pattern = Pattern::of_interfaces(pattern, NEWEST);
    facts
        .net
        .interfaces
        .iter()
        .filter(|interface| pattern.selects(&interface.name, None) && !interface.addresses.is_empty())
        .map(|interface| interface.name.as_str())
        .collect()
}

/// Returns the name in the form that platforms publish, or in the exact form (`=eth0`) if the plain name
/// would also match an interface such as `eth0.100`, or would begin with a sign of the list.
fn pattern_for(facts: &Facts, name: &str) -> String {
    let has_address = |name: &str| facts.net.interface(name).is_some_and(|found| !found.addresses.is_empty());
    // NCCL takes the label of an address (`eth0:0`) for an interface, and the exact form cannot name it: what
    // follows a colon is a port.
    let is_label = |other: &str| other.split_once(':').is_some_and(|(link, _)| link == name);
    let is_ambiguous = facts.net.interfaces.iter().any(|other| {
        other.name != name && other.name.starts_with(name) && (has_address(name) || !is_label(&other.name))
    });
    if is_ambiguous || name.len() == 1 || name.starts_with(['^', '=']) {
        format!("={name}")
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::net::Interface;

    #[test]
    fn a_pattern_selects_the_interface_alone() {
        let pattern = |name: &str, interfaces: &[(&str, bool)]| {
            let mut facts = Facts::default();
            facts.net.interfaces = interfaces
                .iter()
                .map(|(name, has_address)| Interface {
                    name: (*name).to_owned(),
                    addresses: has_address.then(|| "10.0.0.9/24".parse().unwrap()).into_iter().collect(),
                    ..Interface::default()
                })
                .collect();
            pattern_for(&facts, name)
        };
        assert_eq!(pattern("eth0", &[("eth0", true), ("eth1", true)]), "eth0");
        assert_eq!(pattern("eth0", &[("eth0", true), ("eth0.7", true)]), "=eth0");
        assert_eq!(pattern("eth0", &[("eth0", true), ("eth0:0", true)]), "=eth0");
        assert_eq!(pattern("eth0", &[("eth0", false), ("eth0:0", true)]), "eth0", "its only address");
        for (name, wanted) in [("e", "=e"), ("^eth0", "=^eth0"), ("=eth0", "==eth0")] {
            assert_eq!(pattern(name, &[(name, true)]), wanted);
        }
    }
}
