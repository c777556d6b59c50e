//! `NCCL_SOCKET_IFNAME`: the interface of the bootstrap and of TCP.

use super::profile::{publishes, with_source};
use super::{Context, Notes, Setting};
use crate::fabric::interface::{Because, InterfaceChoice, InterfaceSearch, candidates, tries};
use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::list::Pattern;
use crate::libraries::nccl::version::NEWEST;
use crate::text::condensed;

pub(crate) const VARIABLE: &str = "NCCL_SOCKET_IFNAME";

/// Returns the interface from the facts, with a note of what was tried.
pub(crate) fn choose(facts: &Facts, notes: &mut Notes) -> Option<InterfaceChoice> {
    let mut chosen = None;
    for (way, choice) in tries(facts) {
        let rule = match way {
            InterfaceSearch::ToMaster => "the interface of the route to MASTER_ADDR".to_owned(),
            InterfaceSearch::DefaultRoute => "the interface of the default route".to_owned(),
            InterfaceSearch::Only => Because::Only.to_string(),
        };
        notes.tried(VARIABLE, rule, choice.as_ref().map_or("there is none", |choice| &choice.name));
        chosen = choice;
    }
    chosen
}

pub(crate) fn propose(
    context: &Context,
    choice: Option<&InterfaceChoice>,
    notes: &mut Notes,
) -> Vec<Setting> {
    if context.leaves_alone(VARIABLE) {
        return Vec::new();
    }
    let Context { facts, profile, .. } = context;
    let constant = profile.variables.get(VARIABLE);
    let published =
        |rule: String, constant: &str| vec![Setting::from_profile(&profile.name, VARIABLE, constant, rule)];
    match (choice, constant) {
        (Some(choice), Some(constant)) if selected(facts, constant) == [choice.name.as_str()] => {
            published(format!("published, and {}", describe(choice)), constant)
        }
        (None, Some(constant)) if !selected(facts, constant).is_empty() => {
            let rule = "published, and an interface here has this name; no route shows a better one";
            published(rule.to_owned(), constant)
        }
        (Some(choice), constant) => {
            if let Some(constant) = constant {
                let tried = format!("the published {constant}, if it selects exactly that interface");
                notes.tried(VARIABLE, tried, "it does not");
                let finding = published_differs(&publishes(profile, VARIABLE), constant, choice);
                notes.report(with_source(finding, profile, VARIABLE));
            }
            let rule = choice.because.to_string();
            vec![Setting::from_facts(VARIABLE, pattern_for(facts, &choice.name), rule)]
        }
        (None, constant) => {
            notes.report(no_interface(facts, constant.map(String::as_str)));
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

/// Returns a clause such as `eth0 carries the default route`.
fn describe(choice: &InterfaceChoice) -> String {
    let is = if choice.because.is_alone() { "is " } else { "" };
    format!("{} {is}{}", choice.name, choice.because)
}

/// Reports a published interface that is not the chosen one. `publishes` names the publisher, as [`publishes`] does.
fn published_differs(publishes: &str, published: &str, chosen: &InterfaceChoice) -> Finding {
    Finding::info(
        Id::PublishedInterfaceDiffers,
        format!("{publishes} {VARIABLE}={published}, but here {}.", describe(chosen)),
    )
    .about_variables([VARIABLE])
    .about_variables(chosen.because.variable())
    .about_interfaces([&chosen.name])
}

/// Reports that nothing shows which interface reaches the other nodes, not even the published name.
fn no_interface(facts: &Facts, published: Option<&str>) -> Finding {
    let published =
        published.map(|name| format!(", and the published {name} does not exist here")).unwrap_or_default();
    let names: Vec<&str> = candidates(facts).map(|interface| interface.name.as_str()).collect();
    let fix = match names.as_slice() {
        [] => {
            format!(
                "Bring up an interface with an address that other nodes can reach, and name it in {VARIABLE}."
            )
        }
        some => format!("Set {VARIABLE} to one of {}.", condensed(some)),
    };
    Finding::warning(
        Id::NoInterface,
        format!("No default route shows through which interface the job's processes reach each other{published}; {VARIABLE} stays unset."),
    )
    .about_variables([VARIABLE])
    .with_fix(fix)
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
