//! What the user, the configuration, and the profile say about the ports, in the terms of [`crate::fabric`].

use super::{Context, DefaultRouteOption, evidence};
use crate::fabric::{Candidate, OnDefaultRoute, SkipReason, Wanted, candidates, choose};
use crate::libraries::nccl::devices::LIST;
use crate::profiles::{DefaultRouteHca, Fabric};

pub(super) fn wanted<'a>(context: &'a Context) -> Wanted<'a> {
    let Context { profile, user, .. } = context;
    match &profile.fabric {
        Some(Fabric::Plugin) => {
            let is_for = |port: &Candidate| !evidence::is_for_others(profile, port.hca);
            return Wanted::OfPlugin { is_for: Box::new(is_for), by: format!("profile {}", profile.name) };
        }
        Some(Fabric::Interface(_) | Fabric::PluginOverInterfaces(_)) => {
            return Wanted::None(SkipReason::WithoutVerbs { by: format!("profile {}", profile.name) });
        }
        Some(Fabric::Verbs) | None => {}
    }
    if let Some(setting) = user.ib_disabled() {
        let by = format!("{}={} ({})", setting.variable, setting.value, setting.origin);
        return Wanted::None(SkipReason::TurnedOff { by });
    }
    if let Some((pattern, setting)) = user.hcas() {
        let selects = move |port: &Candidate| pattern.selects(&port.hca.name, Some(port.port.number));
        let by = format!("{LIST} ({})", setting.origin);
        return Wanted::Named { selects: Box::new(selects), by };
    }
    // If the plan may not name the ports, NCCL uses every port that it finds.
    match context.leaves_alone(LIST) {
        true => Wanted::All,
        false => Wanted::Rails(on_default_route(context)),
    }
}

/// Returns what the configuration says; if it says nothing, what the profile says.
pub fn on_default_route(context: &Context) -> OnDefaultRoute {
    match (context.options.default_route_hca, context.profile.default_route_hca) {
        (DefaultRouteOption::Use, _) | (DefaultRouteOption::Auto, Some(DefaultRouteHca::Use)) => {
            OnDefaultRoute::Used
        }
        (DefaultRouteOption::Auto, Some(DefaultRouteHca::NoRail)) => OnDefaultRoute::NoRail,
        (DefaultRouteOption::Auto, Some(DefaultRouteHca::Avoid) | None) => OnDefaultRoute::Judged,
        (DefaultRouteOption::Skip, _) => OnDefaultRoute::LeftOut("default-route-hca = \"skip\""),
    }
}

/// Returns the names of the ports that the job would use if the user had not set `NCCL_IB_HCA`; empty if the
/// plan may not set it.
pub(super) fn without_users_list(context: &Context) -> Vec<String> {
    if context.user.hcas().is_none() {
        return Vec::new();
    }
    let user = context.user.without(LIST);
    let context = Context { user, ..context.clone() };
    if context.leaves_alone(LIST) || !context.uses_verbs() {
        return Vec::new();
    }
    let mut ports = candidates(context.facts);
    let _ = choose(context.facts, &mut ports, &wanted(&context));
    ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::plan::{Options, User};
    use crate::profiles::Profile;

    #[test]
    fn the_configuration_s_word_on_default_routes_comes_before_the_profile_s() {
        let decided = |default_route_hca, of_profile| {
            let (facts, options) = (Facts::default(), Options { default_route_hca, ..Options::default() });
            let profile = Profile { default_route_hca: of_profile, ..Profile::default() };
            let user = User::new(&facts, &options);
            on_default_route(&Context { facts: &facts, profile, user, options: &options })
        };
        use DefaultRouteOption::{Auto, Skip, Use};
        let [used, avoid, no_rail] =
            [DefaultRouteHca::Use, DefaultRouteHca::Avoid, DefaultRouteHca::NoRail].map(Some);
        assert_eq!(decided(Auto, None), OnDefaultRoute::Judged);
        assert_eq!(decided(Auto, avoid), OnDefaultRoute::Judged);
        assert_eq!(decided(Auto, used), OnDefaultRoute::Used);
        assert_eq!(decided(Auto, no_rail), OnDefaultRoute::NoRail);
        assert_eq!(decided(Use, no_rail), OnDefaultRoute::Used);
        assert_eq!(decided(Use, avoid), OnDefaultRoute::Used);
        assert_eq!(decided(Skip, used), OnDefaultRoute::LeftOut("default-route-hca = \"skip\""));
    }
}
