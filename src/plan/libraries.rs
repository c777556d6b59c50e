//! The libraries beside NCCL: what they are filled in with, and what they will do in the end.

use serde::Serialize;

use super::Context;
use super::rule::Rule;
use super::setting::{Proposal, Setting};
use crate::fabric::Rails;
use crate::libraries::nccl::interfaces;
use crate::libraries::{self, Library, Remark, Subject, Will};

/// A library that the job has, and what it will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// As the key `libraries` has it.
    pub library: &'static str,
    /// As people write it.
    pub title: &'static str,
    /// `None` where nobody can tell.
    pub will: Option<Will>,
}

/// What mends the libraries on this host, beside what is proposed already.
pub fn propose(context: &Context, rails: &Rails, proposed: &[Proposal]) -> Vec<Proposal> {
    let mut all: Vec<Proposal> = Vec::new();
    for library in wanted(context, rails, proposed) {
        // A library sees what those before it are filled in with.
        let fills = asked(context, rails, &[proposed, &all], |subject| (library.fills)(subject));
        all.extend(fills.into_iter().map(|fill| {
            Proposal::from_facts(fill.variable, fill.value, Rule::Mends(library.name, fill.why))
        }));
    }
    all
}

fn wanted(context: &Context, rails: &Rails, proposed: &[Proposal]) -> Vec<&'static Library> {
    asked(context, rails, &[proposed], |subject| context.options.libraries.of(subject))
}

fn is_in_conf(context: &Context, name: &str) -> bool {
    context.user.get(name).is_some_and(|setting| setting.origin.conf_file().is_some())
}

/// What comes of a question about this host, with the variables of the user and those proposed.
fn asked<T>(
    context: &Context,
    rails: &Rails,
    proposed: &[&[Proposal]],
    question: impl FnOnce(&Subject) -> T,
) -> T {
    let value = |name: &str| {
        let of_user = context.user.get(name).map(|setting| setting.value.as_str());
        let is_it = |proposal: &&Proposal| proposal.variable == name && !context.leaves_alone(name);
        of_user.or_else(|| proposed.iter().copied().flatten().find(is_it)?.value.as_deref())
    };
    let is_kept = |name: &str| context.leaves_alone(name);
    let is_in_conf = |name: &str| is_in_conf(context, name);
    question(&Subject {
        facts: context.facts,
        rails,
        values: &value,
        is_kept: &is_kept,
        is_in_conf: &is_in_conf,
    })
}

/// What the libraries will do with what was decided, and what is wrong with it.
pub fn outlook(context: &Context, rails: &Rails, settings: &[Setting]) -> (Vec<Outlook>, Vec<Remark>) {
    let value = |name: &str| {
        let decided = settings.iter().find(|setting| setting.variable == name);
        let of_user = || context.user.get(name).map(|setting| setting.value.as_str());
        decided.and_then(|setting| setting.value.as_deref()).or_else(of_user)
    };
    let is_kept = |name: &str| context.leaves_alone(name);
    let is_in_conf = |name: &str| is_in_conf(context, name);
    let subject =
        Subject { facts: context.facts, rails, values: &value, is_kept: &is_kept, is_in_conf: &is_in_conf };
    let libraries = context.options.libraries.of(&subject);
    let outlook = |library: &&Library| Outlook {
        library: library.name,
        title: library.title,
        will: (library.will)(&subject),
    };
    let outlooks = libraries.iter().map(outlook).collect();
    (outlooks, libraries.iter().flat_map(|library| (library.remarks)(&subject)).collect())
}

/// The interface on which the user lets NCCL's processes meet.
pub fn interface_of_user(context: &Context) -> Option<String> {
    let get = |name: &str| Some(context.user.get(name)?.value.as_str());
    get(super::interface::VARIABLE).filter(|value| value.len() > 1)?;
    let found = interfaces::first(&context.facts.net, get, context.version());
    found.ok().map(|endpoint| endpoint.interface)
}

/// Whether the configuration lets a profile's companion be filled in.
pub fn allows(context: &Context, variable: &str) -> bool {
    libraries::of_variable(variable).is_none_or(|library| context.options.libraries.allows(library))
}
