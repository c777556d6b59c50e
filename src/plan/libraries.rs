//! The libraries other than NCCL: which variables rdma-init fills in for them, and what they will do as a
//! result.

use serde::Serialize;

use super::Context;
use super::{Setting, SettingOutcome};
use crate::fabric::Rails;
use crate::finding::Source;
use crate::libraries::exclusions::settled;
use crate::libraries::nccl::interfaces;
use crate::libraries::{self, Fill, Library, LibraryContext, LibraryFinding};

/// A library that the job has, and what it will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The name in the key `libraries`.
    pub library: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// A predicate, with the library as its subject; `None` if it is unknown.
    pub will: Option<String>,
}

/// Returns the variables of other libraries that follow the same decisions, if a profile asks for them.
pub(super) fn companions(context: &Context, rails: &Rails) -> Vec<Setting> {
    let profile = &context.profile;
    let follow = |variable: &String| {
        let rule = format!("follows {}'s variable, as profile {} asks", context.library(), profile.name);
        Some(Setting::from_facts(variable, libraries::value(variable, rails)?, rule))
    };
    let asked_for = profile.companions.iter().filter(|variable| allows(context, variable));
    asked_for.filter_map(follow).collect()
}

/// Returns the variables that fix the libraries on this host, in addition to those that are already proposed.
pub(super) fn propose(context: &Context, rails: &Rails, proposed: &[Setting]) -> Vec<Setting> {
    let mut all: Vec<Setting> = Vec::new();
    for library in wanted(context, rails, proposed) {
        // A library sees the variables that were proposed for the libraries before it.
        let fills = asked(context, rails, &[proposed, &all], |subject| -> Vec<Fill> {
            (library.fills)(subject).into_iter().map(|fill| settled(subject, fill)).collect()
        });
        all.extend(fills.into_iter().map(|Fill { variable, value, why }| {
            let setting = match value {
                Some(value) => Setting::from_facts(variable, value, why),
                None => Setting::left(variable, None, SettingOutcome::Unset, Source::Facts, why),
            };
            Setting { library: Some(library.name), ..setting }
        }));
    }
    all
}

fn wanted(context: &Context, rails: &Rails, proposed: &[Setting]) -> Vec<&'static Library> {
    asked(context, rails, &[proposed], |subject| context.options.libraries.of(subject))
}

/// Asks a question about this host, with the user's variables and the proposed ones.
fn asked<T>(
    context: &Context,
    rails: &Rails,
    proposed: &[&[Setting]],
    question: impl FnOnce(&LibraryContext) -> T,
) -> T {
    let value = |name: &str| {
        let of_user = context.user.get(name).map(|setting| setting.value.as_str());
        let is_it = |proposal: &&Setting| proposal.variable == name && !context.leaves_alone(name);
        of_user.or_else(|| proposed.iter().copied().flatten().find(is_it)?.for_command())
    };
    asked_with(context, rails, value, question)
}

/// Asks a question about this host with these values.
fn asked_with<'v, T>(
    context: &Context,
    rails: &Rails,
    values: impl Fn(&str) -> Option<&'v str>,
    question: impl FnOnce(&LibraryContext) -> T,
) -> T {
    let is_kept = |name: &str| context.leaves_alone(name);
    let value = |name: &str| values(name);
    let is_allowed = |library: &Library| context.options.libraries.allows(library);
    question(&LibraryContext {
        facts: context.facts,
        rails,
        values: &value,
        is_kept: &is_kept,
        settings: context.user.settings(),
        is_allowed: &is_allowed,
    })
}

/// Returns what the libraries will do with the decision, and the findings about it.
pub(super) fn outlook(
    context: &Context,
    rails: &Rails,
    settings: &[Setting],
) -> (Vec<Outlook>, Vec<LibraryFinding>) {
    let value = |name: &str| {
        let decided = settings.iter().find(|setting| setting.variable == name);
        let of_user = || context.user.get(name).map(|setting| setting.value.as_str());
        decided.and_then(|setting| setting.value.as_deref()).or_else(of_user)
    };
    asked_with(context, rails, value, |subject| {
        let libraries = context.options.libraries.of(subject);
        let outlook = |library: &&Library| Outlook {
            library: library.name,
            title: library.title,
            will: (library.will)(subject),
        };
        let outlooks = libraries.iter().map(outlook).collect();
        (outlooks, libraries.iter().flat_map(|library| (library.findings)(subject)).collect())
    })
}

/// Returns the interface that the user's variables make NCCL's processes bootstrap on. Loopback is none for the other
/// libraries: their processes on other nodes would not reach it.
pub(super) fn interface_of_user(context: &Context) -> Option<String> {
    let get = |name: &str| Some(context.user.get(name)?.value.as_str());
    get(super::interface::VARIABLE).filter(|value| value.len() > 1)?;
    let found = interfaces::first(&context.facts.net, get, context.version());
    found.ok().filter(|endpoint| !endpoint.address.is_loopback()).map(|endpoint| endpoint.interface)
}

/// Returns whether the configuration allows rdma-init to fill in a profile's companion variable.
pub(super) fn allows(context: &Context, variable: &str) -> bool {
    libraries::of_variable(variable).is_none_or(|library| context.options.libraries.allows(library))
}
