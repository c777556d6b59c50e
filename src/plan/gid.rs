//! `NCCL_IB_GID_INDEX` and `NCCL_IB_ADDR_*`: the source address of RoCE.
//!
//! A table entry holds an address only until the table changes: a link that bounces, or an address that is
//! renewed, may move it. So the plan sets an index only if nothing else makes NCCL find the right one.

mod leave;
mod not_taken;
mod search;

use super::remark::{Instead, Remark};
use super::rule::{Rule, RuleEvidence, Trial};
use super::setting::Proposal;
use super::{Context, Decided, Notes, fill, forecast};
use crate::fabric::gid::{
    OwnAddresses, RailGids, common_index, is_right_everywhere, most_common_index, of_one_family, rails,
};
use crate::fabric::{Candidate, SkipReason};
use crate::facts::Facts;
use crate::facts::gid::Gid;
use crate::libraries::nccl::devices::LIST;
use crate::libraries::nccl::gid::{FAMILY, Family, INDEX, RANGE, Search, index};
use crate::libraries::nccl::version::{KINDS, SEARCHES_GIDS, Version};
use crate::profiles::Profile;
use search::SlotSearch;

/// The right choice for the used ports.
#[must_use]
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GidChoice {
    /// There is nothing to choose: all ports are InfiniBand, no port has a GID of ours, or the user has
    /// decided.
    NotOurs,
    /// The same index is right on every port.
    Index { index: u32, rule: Rule, evidence: Vec<RuleEvidence> },
    /// NCCL's own search, with the variables that make it find a right index on each port, their reason, and the
    /// index that is right on every port now, if there is one.
    Search {
        search: Search,
        steers: Rule,
        releases: Vec<Version>,
        slot: Option<u32>,
        evidence: Vec<RuleEvidence>,
    },
    /// No index, because any index would be wrong on a used port. Variables may make NCCL's search find the
    /// right indexes on this many of all ports.
    NotForAll { search: Option<Search>, steers: Rule, evidence: Vec<RuleEvidence> },
}

impl GidChoice {
    /// Returns the index that is right on every port, if there is one.
    pub(crate) fn index(&self) -> Option<u32> {
        match self {
            GidChoice::Index { index, .. } => Some(*index),
            GidChoice::Search { slot, .. } => *slot,
            GidChoice::NotOurs | GidChoice::NotForAll { .. } => None,
        }
    }
}

/// Chooses for the used ports, and skips ports if no single choice fits all of them.
pub(crate) fn choose(context: &Context, ports: &mut [Candidate], notes: &mut Notes) -> GidChoice {
    let Context { facts, profile, user, .. } = context;
    if !context.uses_verbs() || user.gid().is_some() {
        return GidChoice::NotOurs;
    }
    let (all, without): (Vec<RailGids>, Vec<RailGids>) =
        rails(facts, ports).into_iter().partition(|rail| !rail.slots.is_empty());
    let of = all.len() + without.len();
    let is_for_all = without.is_empty();
    // If the interfaces cannot be listed, it is unknown which addresses are ours.
    if !is_for_all && !facts.net.interfaces.is_empty() {
        notes.remark(Remark::WithoutOwnGid(without.into_iter().map(|rail| rail.name).collect()));
    }
    if all.is_empty() {
        return GidChoice::NotOurs;
    }
    let published = published_index(&all, profile).filter(|_| is_for_all);
    if let Some(index) = profile.variables.get(INDEX) {
        notes.tried(INDEX, Trial::PublishedSlot { index: index.clone(), is_right: published.is_some() });
    }
    if let Some(index) = published {
        not_taken::beside(&all, index, true, notes);
        let evidence = evidence_at(&all, index);
        let rule = Rule::AsWritten(format!("published, and {}", right_everywhere(context, &all, index)));
        return GidChoice::Index { index, rule, evidence };
    }
    let rails = of_one_family(&all);
    let common = common_index(&rails);
    // If the release is unknown, only a choice that is right in every release is possible.
    let of_job = || user.version().filter(|version| *version >= SEARCHES_GIDS).map(|version| vec![version]);
    if !is_for_all {
        let found = of_job().and_then(|releases| search::run(context, &rails, &releases, notes));
        let evidence = found.as_ref().map_or_else(Vec::new, |found| evidence_of(&rails, found));
        let search = found.map(|found| found.search);
        return GidChoice::NotForAll { search, steers: steers_search(context, &rails, of), evidence };
    }
    let left = leave::releases(context).map_err(|why| notes.tried(INDEX, Trial::NotLeftToNccl(why))).ok();
    let found = |releases: Vec<Version>, notes: &mut Notes| {
        let found = search::run(context, &rails, &releases, notes)?;
        not_taken::beside_search(&all, &found.ends, notes);
        let evidence = evidence_of(&rails, &found);
        let steers = steers_search(context, &rails, of);
        Some(GidChoice::Search { search: found.search, steers, releases, slot: common, evidence })
    };
    let is_left = left.is_some();
    if let Some(choice) = left.and_then(|releases| found(releases, notes)) {
        return choice;
    }
    notes.tried(INDEX, Trial::CommonSlot(common));
    if let Some(index) = common {
        not_taken::beside(&all, index, false, notes);
        let evidence = evidence_at(&rails, index);
        let rule = Rule::AsWritten(right_everywhere(context, &rails, index));
        return GidChoice::Index { index, rule, evidence };
    }
    if let Some(choice) = of_job().filter(|_| !is_left).and_then(|releases| found(releases, notes)) {
        return choice;
    }
    largest_agreeing(context, &rails, ports, notes)
}

/// Returns whether the job takes a right index on every port that has one, if the user does not set this variable.
pub(crate) fn is_right_without(decided: &Decided, variable: &str) -> bool {
    let user = decided.user.without(variable);
    let context = Context { user: &user, ..decided.context() };
    let (mut ports, mut notes) = (decided.ports.clone(), Notes::default());
    let choice = choose(&context, &mut ports, &mut notes);
    let proposals = match decided.plan.profile {
        Some(_) => propose(&context, &choice, &mut notes),
        None => Vec::new(),
    };
    let settings = fill::settings(&context, proposals);
    let get = |name: &str| forecast::value(&settings, name);
    let releases = user.version().map_or_else(|| KINDS.to_vec(), |version| vec![version]);
    let rails = with_right(decided.facts, &ports);
    let is_right = |rail: &RailGids, version: Version| {
        let index = index(&rail.port.gids, get, version).ok().and_then(|index| u32::try_from(index).ok());
        index.is_some_and(|index| rail.has(index))
    };
    releases.iter().all(|version| rails.iter().all(|rail| is_right(rail, *version)))
}

/// Returns the lowest index that is right on every port that has one.
pub(crate) fn find_right_index(decided: &Decided) -> Option<u32> {
    common_index(&of_one_family(&with_right(decided.facts, &decided.ports)))
}

fn with_right<'a>(facts: &Facts, ports: &[Candidate<'a>]) -> Vec<RailGids<'a>> {
    rails(facts, ports).into_iter().filter(|rail| !rail.slots.is_empty()).collect()
}

/// Returns the published index, if it is right on every rail.
fn published_index(rails: &[RailGids], profile: &Profile) -> Option<u32> {
    let index: u32 = profile.variables.get(INDEX)?.parse().ok()?;
    is_right_everywhere(rails, index).then_some(index)
}

/// Chooses the index that the most rails share, and skips the other rails if the plan may do so.
fn largest_agreeing(
    context: &Context,
    rails: &[RailGids],
    ports: &mut [Candidate],
    notes: &mut Notes,
) -> GidChoice {
    let Some((index, agreeing)) = most_common_index(rails) else { return GidChoice::NotOurs };
    let of = rails.len();
    let rest: Vec<&str> =
        rails.iter().filter(|rail| !rail.has(index)).map(|rail| rail.name.as_str()).collect();
    let can_narrow = !context.leaves_alone(LIST);
    let remark = Remark::GidSlotsDiffer {
        index,
        agreeing,
        of,
        rest: rest.iter().map(|name| (*name).to_owned()).collect(),
        is_set: can_narrow,
    };
    notes.remark(remark);
    notes.tried(INDEX, Trial::MostCommonSlot { index, agreeing, of });
    let evidence = evidence_at(rails, index);
    if !can_narrow {
        return GidChoice::NotForAll { search: None, steers: Rule::NoCommonIndex, evidence };
    }
    for port in ports.iter_mut().filter(|port| rest.contains(&port.name().as_str())) {
        port.leave_out(SkipReason::GidElsewhere(index));
    }
    GidChoice::Index { index, rule: Rule::MostCommonSlot { agreeing, of }, evidence }
}

fn evidence_at(rails: &[RailGids], index: u32) -> Vec<RuleEvidence> {
    rails.iter().filter_map(|rail| Some(slot(rail, rail.at(index)?))).collect()
}

fn evidence_of(rails: &[RailGids], found: &SlotSearch) -> Vec<RuleEvidence> {
    rails.iter().zip(&found.ends).map(|(rail, end)| slot(rail, end)).collect()
}

fn slot(rail: &RailGids, gid: &Gid) -> RuleEvidence {
    RuleEvidence::Slot { port: rail.name.clone(), gid: gid.clone() }
}

pub(crate) fn propose(context: &Context, choice: &GidChoice, notes: &mut Notes) -> Vec<Proposal> {
    let profile = context.profile;
    let published = profile.variables.get(INDEX).filter(|_| !context.leaves_alone(INDEX));
    let differs = |notes: &mut Notes, instead: Instead| {
        if let Some(published) = published {
            notes.remark(Remark::PublishedGidDiffers { published: published.clone(), instead });
        }
    };
    let unset = |rule: Rule, evidence: &[RuleEvidence]| Proposal {
        value: None,
        ..Proposal::from_facts(INDEX, "", rule).because(evidence.to_vec())
    };
    match choice {
        GidChoice::NotOurs => Vec::new(),
        GidChoice::Index { index, rule, evidence } => {
            let value = index.to_string();
            let proposal = if published == Some(&value) {
                Proposal::from_profile(&profile.name, INDEX, &value, rule.clone())
            } else {
                differs(notes, Instead::Index(*index));
                Proposal::from_facts(INDEX, value, rule.clone())
            };
            vec![proposal.because(evidence.clone())]
        }
        GidChoice::Search { search, steers, releases, slot, evidence } => {
            differs(notes, slot.map_or(Instead::FoundOnEach, Instead::Found));
            let rule = Rule::SearchFinds { releases: releases.clone(), slot: *slot };
            std::iter::once(unset(rule, evidence)).chain(steering(search, steers)).collect()
        }
        GidChoice::NotForAll { search, steers, evidence } => {
            differs(notes, Instead::Nothing);
            let steering = search.iter().flat_map(|search| steering(search, steers));
            std::iter::once(unset(Rule::NoCommonIndex, evidence)).chain(steering).collect()
        }
    }
}

/// Returns the sentence for an index that is right on these rails.
fn right_everywhere(context: &Context, rails: &[RailGids], index: u32) -> String {
    let whose = if are_of_node(context, rails) { "of the node" } else { "with an address of this container" };
    format!("index {index} of every HCA is a RoCE v2 GID {whose}")
}

/// Returns the reason of the variables that steer NCCL's search on these rails, of so many.
fn steers_search(context: &Context, rails: &[RailGids], of: usize) -> Rule {
    let whose = if are_of_node(context, rails) { "the node" } else { "this container" };
    let hcas = match rails.len() {
        on if on == of => "every HCA".to_owned(),
        on => format!("{on} of {of} HCAs"),
    };
    let library = context.library();
    Rule::AsWritten(format!("makes {library}'s own search find the GID of {whose} on {hcas}"))
}

fn are_of_node(context: &Context, rails: &[RailGids]) -> bool {
    let own = OwnAddresses::of(context.facts);
    !rails.iter().flat_map(|rail| &rail.slots).any(|gid| own.is_own(gid))
}

/// Returns the variables that steer NCCL's search; empty if it needs none.
fn steering(search: &Search, rule: &Rule) -> Vec<Proposal> {
    let because = |variable, value: String| Proposal::from_facts(variable, value, rule.clone());
    let family = (search.family == Family::Inet6).then(|| because(FAMILY, "AF_INET6".to_owned()));
    let range = search.range.map(|range| because(RANGE, range.to_string()));
    family.into_iter().chain(range).collect()
}
