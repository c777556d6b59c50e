//! The libraries other than NCCL: what they are filled in with, and what they will do in the end.

use serde::Serialize;

use super::Context;
use super::rule::Rule;
use super::setting::{Proposal, Setting};
use crate::fabric::Rails;
use crate::libraries::exclusions::settled;
use crate::libraries::nccl::interfaces;
use crate::libraries::{self, Fill, Library, LibraryContext, LibraryFinding, Will};

/// A library that the job has, and what it will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// As the key `libraries` has it.
    pub library: &'static str,
    /// As people write it.
    pub title: &'static str,
    /// `None` if it is unknown.
    pub will: Option<Will>,
}

/// Variables of other libraries that follow the same decisions, if a profile asks for them.
pub(super) fn companions(context: &Context, rails: &Rails) -> Vec<Proposal> {
    let profile = context.profile;
    let follow = |variable: &String| {
        let rule = Rule::Follows(profile.name.clone());
        Some(Proposal::from_facts(variable, libraries::value(variable, rails)?, rule))
    };
    let asked_for = profile.companions.iter().filter(|variable| allows(context, variable));
    asked_for.filter_map(follow).collect()
}

/// Returns what fixes the libraries on this host, beside what is proposed already.
pub(super) fn propose(context: &Context, rails: &Rails, proposed: &[Proposal]) -> Vec<Proposal> {
    let mut all: Vec<Proposal> = Vec::new();
    for library in wanted(context, rails, proposed) {
        // A library sees what those before it are filled in with.
        let fills = asked(context, rails, &[proposed, &all], |subject| -> Vec<Fill> {
            (library.fills)(subject).into_iter().map(|fill| settled(subject, fill)).collect()
        });
        all.extend(fills.into_iter().map(|fill| Proposal {
            value: fill.value,
            ..Proposal::from_facts(fill.variable, "", Rule::Mends(library.name, fill.why))
        }));
    }
    all
}

fn wanted(context: &Context, rails: &Rails, proposed: &[Proposal]) -> Vec<&'static Library> {
    asked(context, rails, &[proposed], |subject| context.options.libraries.of(subject))
}

/// Returns what comes of a question about this host, with the variables of the user and those proposed.
fn asked<T>(
    context: &Context,
    rails: &Rails,
    proposed: &[&[Proposal]],
    question: impl FnOnce(&LibraryContext) -> T,
) -> T {
    let value = |name: &str| {
        let of_user = context.user.get(name).map(|setting| setting.value.as_str());
        let is_it = |proposal: &&Proposal| proposal.variable == name && !context.leaves_alone(name);
        of_user.or_else(|| proposed.iter().copied().flatten().find(is_it)?.value.as_deref())
    };
    asked_with(context, rails, value, question)
}

/// Returns the same with these values.
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

/// Reports what the libraries will do with what was decided, and what is wrong with it.
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

/// Returns the interface on which the user lets NCCL's processes bootstrap.
pub(super) fn interface_of_user(context: &Context) -> Option<String> {
    let get = |name: &str| Some(context.user.get(name)?.value.as_str());
    get(super::interface::VARIABLE).filter(|value| value.len() > 1)?;
    let found = interfaces::first(&context.facts.net, get, context.version());
    found.ok().map(|endpoint| endpoint.interface)
}

/// Returns whether the configuration lets a profile's companion be filled in.
pub(super) fn allows(context: &Context, variable: &str) -> bool {
    libraries::of_variable(variable).is_none_or(|library| context.options.libraries.allows(library))
}
