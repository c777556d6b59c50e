//! `NCCL_IB_GID_INDEX` and `NCCL_IB_ADDR_*`: the source address of RoCE.
//!
//! A table entry holds an address only until the table changes: a link that bounces, or an address that is
//! renewed, may move it. So the plan sets an index only if nothing else makes NCCL find the right one.

pub(crate) mod findings;
mod search;

use std::collections::BTreeSet;

use super::profile::{publishes, with_source};
use super::{Context, Decided, Notes, Setting, SettingOutcome, forecast, setting};
use crate::fabric::gid::{
    OwnAddresses, RailGids, common_index, is_right_everywhere, most_common_index, of_one_family, rails,
};
use crate::fabric::{Candidate, SkipReason};
use crate::facts::Facts;
use crate::facts::gid::Gid;
use crate::finding::{Finding, Id, Source};
use crate::image::flavor::Flavor;
use crate::libraries::nccl::devices::LIST;
use crate::libraries::nccl::gid::{FAMILY, Family, INDEX, RANGE, Search, index};
use crate::libraries::nccl::version::{KINDS, READS_GIDS_FIRST, SEARCHES_GIDS, Version};
use crate::profiles::Profile;
use crate::text::counted;
use search::SlotSearch;

/// The right choice for the used ports; empty if there is nothing to choose: all ports are InfiniBand, no port has a GID of
/// ours, or the user has decided.
#[must_use]
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GidChoice {
    /// The index that is right on every port, if there is one.
    pub index: Option<u32>,
    /// The variables that make NCCL take a right entry on each port.
    pub settings: Vec<Setting>,
}

/// Chooses for the used ports, and skips ports if no single choice fits all of them.
pub(crate) fn choose(context: &Context, ports: &mut [Candidate], notes: &mut Notes) -> GidChoice {
    let Context { facts, profile, user, .. } = context;
    if !context.uses_verbs() || user.gid().is_some() {
        return GidChoice::default();
    }
    let (all, without): (Vec<RailGids>, Vec<RailGids>) =
        rails(facts, ports).into_iter().partition(|rail| !rail.slots.is_empty());
    let of = all.len() + without.len();
    let is_for_all = without.is_empty();
    // If the interfaces cannot be listed, it is unknown which addresses are ours.
    if !is_for_all && !facts.net.interfaces.is_empty() {
        notes.report(findings::without_own(facts, &without));
    }
    if all.is_empty() {
        return GidChoice::default();
    }
    let published = published_index(&all, profile).filter(|_| is_for_all);
    if let Some(index) = profile.variables.get(INDEX) {
        let tried = format!("the published {index}, if it is right on every HCA");
        notes.tried(INDEX, tried, if published.is_some() { "it is" } else { "it is not" });
    }
    if let Some(index) = published {
        note_alternatives(&all, index, true, notes);
        let rule = format!("published, and {}", right_everywhere(context, &all, index));
        return set_index(context, &all, index, &rule, notes);
    }
    let rails = of_one_family(&all);
    let common = common_index(&rails);
    // If the release is unknown, only a choice that is right in every release is possible.
    let of_job = || user.version().filter(|version| *version >= SEARCHES_GIDS).map(|version| vec![version]);
    if !is_for_all {
        let found = of_job().and_then(|releases| search::run(context, &rails, &releases, notes));
        let evidence = found.as_ref().map_or_else(Vec::new, |found| evidence_of(&rails, found));
        let steering = found.map(|found| steering(context, &rails, of, &found.search));
        return set_none(context, evidence, steering.unwrap_or_default(), notes);
    }
    let left = match search::releases_that_find_it(context) {
        Ok(releases) => Some(releases),
        Err(why) => {
            let leave = format!("leave it unset, so that {} finds the index by itself", context.library());
            notes.tried(INDEX, leave, why);
            None
        }
    };
    let leave_unset = |releases: Vec<Version>, notes: &mut Notes| {
        let found = search::run(context, &rails, &releases, notes)?;
        note_alternatives_to_search(&all, &found.ends, notes);
        Some(leave_to_search(context, &rails, &releases, common, &found, notes))
    };
    let is_left = left.is_some();
    if let Some(choice) = left.and_then(|releases| leave_unset(releases, notes)) {
        return choice;
    }
    let found_common = common.map_or("there is none".to_owned(), |index| format!("index {index}"));
    notes.tried(INDEX, "the lowest GID index that is right on every HCA", found_common);
    if let Some(index) = common {
        note_alternatives(&all, index, false, notes);
        let rule = right_everywhere(context, &rails, index);
        return set_index(context, &rails, index, &rule, notes);
    }
    if let Some(choice) = of_job().filter(|_| !is_left).and_then(|releases| leave_unset(releases, notes)) {
        return choice;
    }
    largest_agreeing(context, &rails, ports, notes)
}

/// Returns whether the job takes a right index on every port that has one, if the user does not set this variable.
pub(crate) fn is_right_without(decided: &Decided, variable: &str) -> bool {
    let user = decided.user.without(variable);
    let context = Context { user, ..decided.context.clone() };
    let (mut ports, mut notes) = (decided.ports.clone(), Notes::default());
    let choice = choose(&context, &mut ports, &mut notes);
    let proposals = decided.plan.profile.as_ref().map(|_| choice.settings);
    let settings = setting::settings(&context, proposals.unwrap_or_default());
    let get = |name: &str| forecast::value(&settings, name);
    let releases = context.user.version().map_or_else(|| KINDS.to_vec(), |version| vec![version]);
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
    let Some((index, agreeing)) = most_common_index(rails) else { return GidChoice::default() };
    let of = rails.len();
    let rest: Vec<&str> =
        rails.iter().filter(|rail| !rail.has(index)).map(|rail| rail.name.as_str()).collect();
    let can_narrow = !context.leaves_alone(LIST);
    notes.report(findings::slots_differ(context, index, (agreeing, of), &rest, can_narrow));
    let rule = format!("the index that is right for the most ports ({agreeing} of {})", counted(of, "port"));
    notes.tried(INDEX, &rule, format!("index {index}"));
    if !can_narrow {
        return set_none(context, evidence_at(rails, index), Vec::new(), notes);
    }
    for port in ports.iter_mut().filter(|port| rest.contains(&port.name().as_str())) {
        port.leave_out(SkipReason::GidElsewhere(index));
    }
    set_index(context, rails, index, &rule, notes)
}

fn evidence_at(rails: &[RailGids], index: u32) -> Vec<String> {
    rails.iter().filter_map(|rail| Some(slot(rail, rail.at(index)?))).collect()
}

fn evidence_of(rails: &[RailGids], found: &SlotSearch) -> Vec<String> {
    rails.iter().zip(&found.ends).map(|(rail, end)| slot(rail, end)).collect()
}

fn slot(rail: &RailGids, gid: &Gid) -> String {
    format!("{} GID index {}: {}, RoCE v2", rail.name, gid.index, address(gid))
}

/// Returns the address with its interface, such as `172.16.1.9 on eth1.100`, because the name may show a
/// VLAN.
fn address(gid: &Gid) -> String {
    match &gid.netdev {
        Some(netdev) => format!("{} on {netdev}", gid.address()),
        None => gid.address().to_string(),
    }
}

/// Sets an index for these rails.
fn set_index(context: &Context, rails: &[RailGids], index: u32, rule: &str, notes: &mut Notes) -> GidChoice {
    let (profile, value) = (&context.profile, index.to_string());
    let setting = if profile.variables.get(INDEX) == Some(&value) && !context.leaves_alone(INDEX) {
        Setting::from_profile(&profile.name, INDEX, &value, rule)
    } else {
        report_differs(context, &format!("{index} is set instead"), notes);
        Setting::from_facts(INDEX, value, rule)
    };
    GidChoice { index: Some(index), settings: vec![setting.because(evidence_at(rails, index))] }
}

/// Leaves the index to NCCL's own search, with the variables that make it find a right entry on each rail. `common` is
/// the index that is right on every rail now, if there is one.
fn leave_to_search(
    context: &Context,
    rails: &[RailGids],
    releases: &[Version],
    common: Option<u32>,
    found: &SlotSearch,
    notes: &mut Notes,
) -> GidChoice {
    let library = context.library();
    let find = find(library, releases);
    let (instead, rule) = match common {
        Some(index) => {
            // Later releases do not search again for a connection.
            let when = match releases.last().is_some_and(|release| *release >= READS_GIDS_FIRST) {
                true => ", also after a change of the table",
                false => " at each connection",
            };
            (
                format!("it stays unset, because {library} finds index {index} itself"),
                format!("{find} the right GID index{when}, now index {index} of every HCA"),
            )
        }
        None => (
            "it stays unset, because the right indexes differ".to_owned(),
            format!("the right GID index differs between HCAs, and {find} it on each"),
        ),
    };
    report_differs(context, &instead, notes);
    let left = Setting::left(INDEX, None, SettingOutcome::Left, Source::Facts, rule);
    let mut settings = vec![left.because(evidence_of(rails, found))];
    settings.extend(steering(context, rails, rails.len(), &found.search));
    GidChoice { index: common, settings }
}

/// Sets no index, because any index would be wrong on a used port. Variables may steer the search on some ports.
fn set_none(
    context: &Context,
    evidence: Vec<String>,
    steering: Vec<Setting>,
    notes: &mut Notes,
) -> GidChoice {
    report_differs(context, "it stays unset, because no index is right for every HCA", notes);
    let rule = "no GID index is right on every HCA";
    let unset = Setting::left(INDEX, None, SettingOutcome::Unset, Source::Facts, rule).because(evidence);
    GidChoice { index: None, settings: [vec![unset], steering].concat() }
}

/// Reports that the published index is not right here, and what happens instead.
fn report_differs(context: &Context, instead: &str, notes: &mut Notes) {
    let profile = &context.profile;
    if let Some(published) = profile.variables.get(INDEX).filter(|_| !context.leaves_alone(INDEX)) {
        let message = format!(
            "{} {INDEX}={published}, which is not right for every HCA here; {instead}.",
            publishes(profile, INDEX)
        );
        let finding = Finding::info(Id::PublishedGidDiffers, message).about_variables([INDEX]);
        notes.report(with_source(finding, profile, INDEX));
    }
}

/// Returns a clause such as `NCCL 2.27.7 finds` or `NCCL 2.27.7 and 2.28.9 find`.
fn find(library: Flavor, releases: &[Version]) -> String {
    let releases: Vec<String> = releases.iter().map(Version::to_string).collect();
    match releases.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{library} {} and {last} find", rest.join(", ")),
        Some((only, _)) => format!("{library} {only} finds"),
        None => format!("{library} finds"),
    }
}

/// For `plan --why`: notes the other indexes that would also be right, and why the plan does not use them. `is_published`
/// is true if the index that is used is the platform's constant.
fn note_alternatives(rails: &[RailGids], taken: u32, is_published: bool, notes: &mut Notes) {
    let at = |index: u32| rails.iter().filter_map(move |rail| rail.at(index));
    let ipv6_is_taken = at(taken).any(|gid| gid.address().is_ipv6());
    let indexes: BTreeSet<u32> =
        rails.iter().flat_map(|rail| &rail.slots).map(|gid| gid.index).filter(|i| *i != taken).collect();
    for index in indexes {
        let gids: Vec<&Gid> = at(index).collect();
        let (right, of) = (gids.len(), rails.len());
        let is_ipv6 = gids.iter().all(|gid| gid.address().is_ipv6());
        let to_take_it = format!("; set {INDEX}={index} to take it");
        let everywhere = "also on every HCA".to_owned();
        let (right, why) = if right < of {
            (format!("on {right} of {of} HCAs"), "one index applies to all HCAs".to_owned())
        } else if !is_right_everywhere(rails, index) {
            let families = "on every HCA, IPv4 on some and IPv6 on others";
            (families.to_owned(), "IPv4 and IPv6 cannot reach each other".to_owned())
        } else if is_ipv6 && !ipv6_is_taken {
            (everywhere, format!("IPv4 comes before IPv6{to_take_it}"))
        } else if is_published {
            (everywhere, format!("index {taken} is published{to_take_it}"))
        } else {
            (everywhere, format!("index {taken} is lower{to_take_it}"))
        };
        let rule = format!("index {index}, which is right {right} ({})", addresses(&gids));
        notes.tried(INDEX, rule, format!("not used, because {why}"));
    }
}

/// Does the same for the indexes that NCCL's own search finds, one on each rail.
fn note_alternatives_to_search(rails: &[RailGids], ends: &[&Gid], notes: &mut Notes) {
    for (rail, end) in rails.iter().zip(ends) {
        for gid in rail.slots.iter().filter(|gid| gid.index != end.index) {
            let rule =
                format!("index {} of {}, which is also right ({})", gid.index, rail.name, address(gid));
            let found = format!("the search finds index {} ({})", end.index, address(end));
            notes.tried(INDEX, rule, format!("not used, because {found}"));
        }
    }
}

/// The most addresses in a line.
const SHOWN: usize = 4;

fn addresses(gids: &[&Gid]) -> String {
    let mut list: Vec<String> = gids.iter().take(SHOWN).map(|gid| address(gid)).collect();
    if gids.len() > SHOWN {
        list.push(format!("{} more", gids.len() - SHOWN));
    }
    list.join(", ")
}

/// Returns the sentence for an index that is right on these rails.
fn right_everywhere(context: &Context, rails: &[RailGids], index: u32) -> String {
    let whose = if are_of_node(context, rails) { "of the node" } else { "with an address of this container" };
    format!("index {index} of every HCA is a RoCE v2 GID {whose}")
}

fn are_of_node(context: &Context, rails: &[RailGids]) -> bool {
    let own = OwnAddresses::of(context.facts);
    !rails.iter().flat_map(|rail| &rail.slots).any(|gid| own.is_own(gid))
}

/// Returns the variables that steer NCCL's search on these rails, of so many; empty if it needs none.
fn steering(context: &Context, rails: &[RailGids], of: usize, search: &Search) -> Vec<Setting> {
    let whose = if are_of_node(context, rails) { "the node" } else { "this container" };
    let hcas = match rails.len() {
        on if on == of => "every HCA".to_owned(),
        on => format!("{on} of {of} HCAs"),
    };
    let rule = format!("makes {}'s own search find the GID of {whose} on {hcas}", context.library());
    let because = |variable, value: String| Setting::from_facts(variable, value, &rule);
    let family = (search.family == Family::Inet6).then(|| because(FAMILY, "AF_INET6".to_owned()));
    let range = search.range.map(|range| because(RANGE, range.to_string()));
    family.into_iter().chain(range).collect()
}
