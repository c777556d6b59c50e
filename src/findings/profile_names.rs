//! The names of variables in a profile of the user, and in the key `keep`.

use std::collections::BTreeSet;

use super::values::names::{Name, judge};
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::libraries;
use crate::plan::Context;
use crate::profiles::Profile;

pub(super) fn findings(library: Flavor, profile: &Profile) -> Vec<Finding> {
    if !profile.is_of_user {
        return Vec::new();
    }
    let whole = |name: &&String| !name.contains('*');
    let others = profile.unset.iter().chain(profile.hands_off.iter().filter(whole)).map(String::as_str);
    let names: BTreeSet<&str> = profile.may_fill().chain(others).collect();
    names.into_iter().filter_map(|name| finding(library, profile, name)).collect()
}

/// Reports the names in `keep` that mean another variable, which is then not kept.
pub(super) fn check_keep(context: &Context) -> Vec<Finding> {
    let may_be_filled = |name: &str| context.profile.may_fill().any(|filled| filled == name);
    let finding = |name: &String| {
        let (library, meant) = (context.library(), libraries::meant(name)?);
        let message = format!(
            "The configuration has {name} in keep, which {library} and the other libraries do not know, so it keeps nothing from being filled in; did you mean {meant}?"
        );
        Some(
            Finding::warning(Id::MisspeltVariable, message)
                .about_variables([name, &meant])
                .with_fix(format!("Write it as {meant} in keep, or remove it.")),
        )
    };
    context.options.keep.iter().filter(|name| !may_be_filled(name)).filter_map(finding).collect()
}

fn finding(library: Flavor, profile: &Profile, name: &str) -> Option<Finding> {
    let start = format!("Profile {} has the variable {name}", profile.name);
    match judge(name) {
        Name::Known => None,
        Name::Misspelt(meant) => Some(
            Finding::warning(
                Id::MisspeltVariable,
                format!(
                    "{start}, which {library} and the other libraries do not know; did you mean {meant}?"
                ),
            )
            .about_variables([name, meant])
            .with_fix(format!("Write it as {meant} in the profile, or remove it.")),
        ),
        Name::Unknown => Some(
            Finding::info(
                Id::UnknownVariable,
                format!("{start}, which no NCCL up to 2.32 reads; a net plugin may."),
            )
            .about_variables([name]),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::plan::{self, Options};
    use crate::profiles::Profiles;

    fn said(text: &str) -> Vec<String> {
        let head = "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n";
        let profile: Profile = toml::from_str(&format!("{head}{text}")).unwrap();
        let profile = Profile { is_of_user: true, ..profile };
        findings(Flavor::Nccl, &profile).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn names_that_no_library_knows_are_reported_wherever_they_are() {
        let slip = "which NCCL and the other libraries do not know; did you mean";
        let text = "unset = [\"NCCL_IB_TCS\"]\nhands-off = [\"NCCL_IB_HCAS\", \"NCCL_X*\"]\n\
                    companions = [\"UCX_NET_DEVICE\"]\n[variables]\nNCCL_IB_GID_INDX = \"3\"\nNCCL_IB_TC = \"106\"\nTZ = \"UTC\"\n\
                    [from-environment]\nNCCL_SOCKET_IFNAMES = \"SITE_IF\"\n\
                    [[only]]\nnccl-min = \"2.27\"\nvariables = { NCCL_MY_OWN_KNOB = \"1\" }\n";
        assert_eq!(
            said(text),
            [
                format!("Profile site has the variable NCCL_IB_GID_INDX, {slip} NCCL_IB_GID_INDEX?"),
                format!("Profile site has the variable NCCL_IB_HCAS, {slip} NCCL_IB_HCA?"),
                format!("Profile site has the variable NCCL_IB_TCS, {slip} NCCL_IB_TC?"),
                "Profile site has the variable NCCL_MY_OWN_KNOB, which no NCCL up to 2.32 reads; a net plugin may.".to_owned(),
                format!("Profile site has the variable NCCL_SOCKET_IFNAMES, {slip} NCCL_SOCKET_IFNAME?"),
                format!("Profile site has the variable UCX_NET_DEVICE, {slip} UCX_NET_DEVICES?"),
            ]
        );
    }

    #[test]
    fn a_name_in_keep_that_means_another_one_is_reported() {
        let names = ["NCCL_IB_HAC", "ib_tc", "NCCL_IB_SL", "NCCL_ASYNC_ERROR_HANDLING", "TZ"];
        let options = Options { keep: names.map(str::to_owned).into(), ..Options::default() };
        let facts = Facts::default();
        let decided = plan::decide(&facts, &Profiles::load(None).unwrap(), &options);
        let said: Vec<String> =
            check_keep(&decided.context()).into_iter().filter_map(|finding| finding.fix).collect();
        let fix = |meant: &str| format!("Write it as {meant} in keep, or remove it.");
        assert_eq!(said, [fix("NCCL_IB_HCA"), fix("NCCL_IB_TC")]);
    }

    #[test]
    fn the_names_of_this_programs_profiles_are_known() {
        for profile in Profiles::load(None).unwrap().iter() {
            let profile = Profile { is_of_user: true, ..profile.clone() };
            assert_eq!(findings(Flavor::Nccl, &profile), [], "{}", profile.name);
        }
    }
}
