//! Checks each profile on its golden hosts: whether it is chosen by itself, whether it stays if the evidence of other
//! clouds is there as well, and whether a user who sets the platform's values keeps them.

use std::collections::{BTreeMap, BTreeSet};

use rdma_init::config::Config;
use rdma_init::facts::Facts;
use rdma_init::facts::dra::ClaimedDevice;
use rdma_init::facts::settings::UserSetting;
use rdma_init::finding::{Id, Source};
use rdma_init::pipeline;
use rdma_init::plan::{Plan, SettingOutcome};
use rdma_init::profiles::{Condition, Profile, Profiles};

use crate::support::golden::{Case, cases};

/// Nothing in a container shows these, so each is chosen by name only.
const BY_NAME: [&str; 3] = ["ibm-h100", "spectrum-x", "volcengine-mlp"];

/// A golden host of a profile of the program.
struct OfProfile<'c> {
    host: &'c str,
    facts: &'c Facts,
    config: &'c Config,
    is_named: bool,
}

/// Returns the golden hosts of each profile, those with profiles of their own aside.
fn by_profile<'c>(cases: &'c [Case], profiles: &Profiles) -> BTreeMap<String, Vec<OfProfile<'c>>> {
    let mut all = BTreeMap::<String, Vec<OfProfile>>::new();
    for Case { name: host, facts, profiles: own, config } in cases {
        if own.names().any(|name| profiles.get(name).is_none()) {
            continue;
        }
        let plan = pipeline::decide(facts, profiles, config);
        let Some(choice) = plan.profile else { continue };
        let is_named = choice.is_named();
        all.entry(choice.name).or_default().push(OfProfile { host, facts, config, is_named });
    }
    all
}

/// `gcp` of `gcp-gib`: profiles of one cloud share their firmware, and files and variables distinguish its machines.
fn cloud(profile: &str) -> &str {
    match profile.split('-').next() {
        Some("ack" | "acs" | "erdma" | "pai") => "alibaba",
        name => name.unwrap_or(profile),
    }
}

/// Returns what conditions of profiles of other clouds ask for.
fn of_others<'a>(
    profiles: &'a Profiles,
    own: &'a str,
    asked: impl Fn(&Condition) -> Option<&str> + 'a,
) -> BTreeSet<String> {
    let others = profiles.iter().filter(|profile| cloud(&profile.name) != cloud(own));
    let conditions = others.flat_map(|profile| &profile.evidence);
    conditions.filter_map(|condition| asked(condition).map(|text| text.replace('*', "X"))).collect()
}

/// Returns whether a profile is `wanted`, or extends it.
fn is_or_extends(profile: &Profile, wanted: &str) -> bool {
    profile.name == wanted || profile.extends.as_deref() == Some(wanted)
}

fn chosen(plan: &Plan) -> &str {
    plan.profile.as_ref().map_or("none", |choice| &choice.name)
}

/// Returns devices of resource claims with the attributes that conditions of profiles of other clouds ask for.
fn claims_of_others(profiles: &Profiles, own: &str) -> Vec<ClaimedDevice> {
    let names = of_others(profiles, own, |condition| Some(&condition.claimed_attribute.as_ref()?.name));
    let value = |name: String| (name, "another cloud's".to_owned());
    names
        .into_iter()
        .map(|name| ClaimedDevice { attributes: [value(name)].into(), ..ClaimedDevice::default() })
        .collect()
}

/// Each profile but those by name has a host that shows it by itself. There, a mounted directory, a resource claim
/// or the master's name of another cloud changes nothing; a copied variable of another cloud changes nothing
/// without a finding.
pub fn each_is_known_beside_the_evidence_of_others() {
    let profiles = Profiles::load(None).unwrap();
    let cases = cases();
    let all = by_profile(&cases, &profiles);
    let mut by_name = Vec::new();
    let mut wrong = Vec::new();
    for profile in profiles.iter() {
        let name = profile.name.as_str();
        let of_it: Vec<&OfProfile> = all.get(name).into_iter().flatten().collect();
        assert!(!of_it.is_empty(), "no golden host has the profile {name}");
        let by_itself: Vec<&&OfProfile> = of_it.iter().filter(|of| !of.is_named).collect();
        if by_itself.is_empty() {
            by_name.push(name);
            continue;
        }
        // Any other profile is better than these.
        if name.starts_with("generic-") {
            continue;
        }
        let files = of_others(&profiles, name, |condition| condition.file.as_deref());
        let variables = of_others(&profiles, name, |condition| condition.environment.as_deref());
        assert!(!files.is_empty() && !variables.is_empty(), "{name}");
        let masters = of_others(&profiles, name, |condition| condition.master_addr.as_deref());
        for OfProfile { host, facts, config, .. } in by_itself {
            let mut with_files = (*facts).clone();
            with_files.platform.files.extend(files.iter().cloned());
            with_files.dra.extend(claims_of_others(&profiles, name));
            let plan = pipeline::decide(&with_files, &profiles, config);
            if chosen(&plan) != name {
                wrong.push(format!("{host}: with {files:?}, {} is chosen, and not {name}", chosen(&plan)));
            }
            let mut with_variables = (*facts).clone();
            with_variables.platform.markers.extend(variables.iter().cloned());
            with_variables.platform.master_addr =
                masters.first().cloned().or(facts.platform.master_addr.clone());
            let plan = pipeline::decide(&with_variables, &profiles, config);
            let is_told = plan.findings.iter().any(|finding| finding.id == Id::EqualProfiles);
            let is_right = profiles.get(chosen(&plan)).is_some_and(|profile| is_or_extends(profile, name));
            if !is_right && !is_told {
                wrong
                    .push(format!("{host}: with {variables:?}, {} is chosen, and not {name}", chosen(&plan)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(by_name, BY_NAME);
}

/// Returns all values that the platform publishes, and those of its own variables here.
fn published(profile: &Profile, facts: &Facts) -> BTreeMap<String, String> {
    let only = profile.only.iter().flat_map(|only| &only.variables);
    let constants = profile.variables.iter().chain(only).map(|(name, value)| (name.clone(), value.clone()));
    let of_platform = profile
        .from_environment
        .iter()
        .filter_map(|(variable, source)| Some((variable.clone(), facts.settings.get(source)?.value.clone())));
    let mut all = BTreeMap::new();
    for (variable, value) in constants.chain(of_platform) {
        all.entry(variable).or_insert(value);
    }
    all
}

/// On each host of each profile, the user sets all that the platform publishes, once as it is published and once
/// with another value: the profile stays, and each value is the user's.
pub fn values_stand_if_the_user_sets_them() {
    let profiles = Profiles::load(None).unwrap();
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, of_it) in by_profile(&cases(), &profiles) {
        let profile = profiles.get(&name).unwrap();
        for OfProfile { host, facts, config, .. } in of_it {
            for is_published in [true, false] {
                let mut set = published(profile, facts);
                let mut with = facts.clone();
                with.settings.0.retain(|setting| !set.contains_key(&setting.variable));
                set.retain(|variable, _| !config.keep.contains(variable));
                if !is_published {
                    set.values_mut().for_each(|value| *value = "7".to_owned());
                }
                let settings = set
                    .iter()
                    .map(|(variable, value)| UserSetting::new(variable, value, Source::Environment));
                with.settings.0.extend(settings);
                let plan = pipeline::decide(&with, &profiles, config);
                if chosen(&plan) != name {
                    wrong.push(format!("{host}: {} is chosen, and not {name}", chosen(&plan)));
                }
                for (variable, value) in &set {
                    let setting = plan.settings.iter().find(|setting| setting.variable == *variable);
                    let stands = setting.is_some_and(|setting| {
                        setting.outcome == SettingOutcome::User && setting.value.as_ref() == Some(value)
                    });
                    if !stands && !config.set.contains_key(variable) {
                        wrong.push(format!("{host}: {variable}={value} does not stand: {setting:?}"));
                    }
                }
                seen.insert(name.clone());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let names: BTreeSet<String> = profiles.names().map(str::to_owned).collect();
    assert_eq!(seen, names);
}
