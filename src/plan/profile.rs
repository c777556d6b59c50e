//! Which profile: the named one, or the one whose evidence is there.

use serde::Serialize;

use super::rule::Sign;
use super::{Options, ProfileOption, no_profile};
use crate::fabric::{Candidate, dominant_link_layer};
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::profiles::{Condition, HcaEvidence, Profile, Profiles, fits};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileChoice {
    pub name: String,
    /// What matched; empty for a profile that was asked for by name.
    pub evidence: Vec<Sign>,
    /// The oldest release of NCCL that the platform says it supports.
    #[serde(skip)]
    pub nccl_min: Option<String>,
    /// The same of CUDA.
    #[serde(skip)]
    pub cuda_min: Option<String>,
}

impl ProfileChoice {
    pub fn is_named(&self) -> bool {
        self.evidence.is_empty()
    }

    /// The variables among what matched.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.evidence.iter().filter_map(|sign| match sign {
            Sign::Variable(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// What matched, in words.
    pub fn signs(&self) -> String {
        self.evidence.iter().map(Sign::to_string).collect::<Vec<String>>().join(", ")
    }
}

pub fn choose(
    facts: &Facts,
    candidates: &[Candidate],
    profiles: &Profiles,
    options: &Options,
) -> (Option<ProfileChoice>, Profile) {
    let found = match &options.profile {
        ProfileOption::None => None,
        ProfileOption::Named(name) => profiles.get(name).map(|profile| (profile, Vec::new())),
        ProfileOption::Auto => by_evidence(facts, candidates, profiles),
    };
    match found {
        Some((profile, evidence)) => {
            let choice = ProfileChoice {
                name: profile.name.clone(),
                evidence,
                nccl_min: profile.constraints.nccl_min.clone(),
                cuda_min: profile.constraints.cuda_min.clone(),
            };
            (Some(choice), profile.clone())
        }
        None => (None, no_profile()),
    }
}

fn by_evidence<'a>(
    facts: &Facts,
    candidates: &[Candidate],
    profiles: &'a Profiles,
) -> Option<(&'a Profile, Vec<Sign>)> {
    let matching = profiles.outlines().filter_map(|outline| {
        let evidence = outline.evidence.iter().find_map(|c| evidence(facts, candidates, c))?;
        Some((outline, evidence))
    });
    // Of profiles with the same priority, the first by name.
    let (best, evidence) =
        matching.reduce(|best, next| if next.0.priority > best.0.priority { next } else { best })?;
    Some((profiles.get(&best.name)?, evidence))
}

/// What matched, when every condition holds.
fn evidence(facts: &Facts, candidates: &[Candidate], condition: &Condition) -> Option<Vec<Sign>> {
    let Condition {
        hca,
        no_hca,
        link_layer,
        interface,
        interface_up,
        dmi_vendor,
        dmi_product,
        gpu_model,
        environment,
        master_addr,
    } = condition;
    let mut evidence = Vec::new();
    let mut holds = |wanted: bool, found: Option<Sign>| {
        evidence.extend(found.clone());
        !wanted || found.is_some()
    };
    let all = holds(hca.is_some(), hca.as_ref().and_then(|hca| matching_hcas(facts, hca)))
        && holds(*no_hca, (*no_hca && facts.rdma.is_empty()).then_some(Sign::NoHca))
        && holds(
            link_layer.is_some(),
            link_layer.as_ref().and_then(|wanted| {
                let dominant = String::from(dominant_link_layer(candidates)?);
                (dominant == *wanted).then_some(Sign::LinkLayer(dominant))
            }),
        )
        && holds(
            interface.is_some(),
            interface.as_ref().and_then(|pattern| {
                let found = facts.net.interfaces.iter().find(|i| fits(pattern, &i.name))?;
                Some(Sign::Interface(found.name.clone()))
            }),
        )
        && holds(
            interface_up.is_some(),
            interface_up.as_ref().and_then(|pattern| {
                let found = facts.net.interfaces.iter().find(|i| fits(pattern, &i.name) && i.is_up())?;
                Some(Sign::InterfaceUp(found.name.clone()))
            }),
        )
        && holds(
            dmi_vendor.is_some(),
            text("DMI vendor", dmi_vendor.as_deref(), facts.dmi.vendor.as_deref()),
        )
        && holds(
            dmi_product.is_some(),
            text("DMI product", dmi_product.as_deref(), facts.dmi.product.as_deref()),
        )
        && holds(
            gpu_model.is_some(),
            facts.gpu.models.iter().find_map(|model| text("GPU", gpu_model.as_deref(), Some(model))),
        )
        && holds(
            environment.is_some(),
            environment.as_ref().and_then(|name| {
                facts
                    .platform
                    .markers
                    .iter()
                    .any(|marker| marker == name)
                    .then(|| Sign::Variable(name.to_string()))
            }),
        )
        && holds(
            master_addr.is_some(),
            text("MASTER_ADDR", master_addr.as_deref(), facts.platform.master_addr.as_deref()),
        );
    all.then_some(evidence)
}

fn text(what: &'static str, pattern: Option<&str>, found: Option<&str>) -> Option<Sign> {
    let (pattern, found) = (pattern?, found?);
    fits(pattern, found).then(|| Sign::Text { what, found: found.to_owned() })
}

fn matching_hcas(facts: &Facts, wanted: &HcaEvidence) -> Option<Sign> {
    let is_it = |hca: &&Hca| match &hca.driver {
        Some(driver) => fits(&wanted.driver, driver),
        None => fits(&wanted.name, &hca.name),
    };
    let mut matching = facts.rdma.iter().filter(is_it);
    let first = matching.next()?;
    Some(Sign::Hca { name: first.name.clone(), driver: first.driver.clone(), more: matching.count() })
}
