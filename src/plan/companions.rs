//! Variables of other libraries that follow the same decisions, when a profile
//! asks for them.

use super::Context;
use super::libraries::allows;
use super::rule::Rule;
use super::setting::Proposal;
use crate::fabric::Rails;
use crate::libraries;

pub fn propose(context: &Context, rails: &Rails) -> Vec<Proposal> {
    let profile = context.profile;
    let follow = |variable: &String| {
        let rule = Rule::Follows(profile.name.clone());
        Some(Proposal::from_facts(variable, libraries::value(variable, rails)?, rule))
    };
    let asked_for = profile.companions.iter().filter(|variable| allows(context, variable));
    asked_for.filter_map(follow).collect()
}
