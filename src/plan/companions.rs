//! Variables of other libraries that follow the same decisions, when a profile
//! asks for them.

use super::gid::GidChoice;
use super::rule::Rule;
use super::setting::Proposal;
use crate::fabric::interface::InterfaceChoice;
use crate::fabric::{Candidate, Rails};
use crate::libraries;
use crate::profiles::Profile;

pub fn propose(
    ports: &[Candidate],
    gid: &GidChoice,
    interface: Option<&InterfaceChoice>,
    profile: &Profile,
) -> Vec<Proposal> {
    let rails = Rails {
        ports,
        gid_index: match gid {
            GidChoice::Index { index, .. } => Some(*index),
            GidChoice::NotOurs | GidChoice::Search { .. } => None,
        },
        interface: interface.map(|choice| choice.name.as_str()),
    };
    let follow = |variable: &String| {
        let rule = Rule::Follows(profile.name.clone());
        Some(Proposal::from_facts(variable, libraries::value(variable, &rails)?, rule))
    };
    profile.companions.iter().filter_map(follow).collect()
}
