//! Parts of a user's own profile that have no effect.

use std::collections::BTreeSet;

use crate::finding::{Finding, Id};
use crate::libraries::COMPANIONS;
use crate::profiles::Profile;

pub(super) fn findings(profile: &Profile) -> Vec<Finding> {
    if !profile.is_of_user {
        return Vec::new();
    }
    let name = &profile.name;
    let mut findings = Vec::new();
    let given: BTreeSet<&str> = profile
        .variables
        .keys()
        .chain(profile.from_environment.keys())
        .chain(profile.only.iter().flat_map(|only| only.variables.keys()))
        .map(String::as_str)
        .collect();
    for variable in given {
        // A value counts more than a pattern that fits its variable.
        if !profile.hands_off.iter().any(|name| name == variable) {
            continue;
        }
        findings.push(
            Finding::warning(
                Id::IdleInProfile,
                format!(
                    "Profile {name} has a value for {variable}, but its key hands-off names it, too: rdma-init does not set the variable."
                ),
            )
            .about_variables([variable])
            .with_fix("Remove the value, or the name from hands-off."),
        );
    }
    for companion in profile.companions.iter().filter(|name| !COMPANIONS.contains(&name.as_str())) {
        findings.push(
            Finding::warning(
                Id::IdleInProfile,
                format!(
                    "Profile {name} has the companion {companion}, which rdma-init does not know: it does not set the variable."
                ),
            )
            .about_variables([companion])
            .with_fix(format!("Remove it from the profile. There are {}.", COMPANIONS.join(", "))),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::Profiles;

    #[test]
    fn the_profiles_of_this_program_have_no_idle_part() {
        for profile in Profiles::load(None).unwrap().iter() {
            let profile = Profile { is_of_user: true, ..profile.clone() };
            assert_eq!(findings(&profile), [], "{}", profile.name);
        }
    }

    #[test]
    fn an_idle_part_is_named_once() {
        let profile = toml::from_str(
            "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\nhands-off = [\"NCCL_*\", \"NCCL_IB_TC\", \"NCCL_IB_SL\", \"NCCL_IB_TIMEOUT\"]\n\
             companions = [\"GLOO_SOCKET_IFNAME\", \"SITE_IFNAME\"]\n\
             [variables]\nNCCL_IB_TC = \"106\"\nNCCL_IB_QPS_PER_CONNECTION = \"4\"\nTZ = \"UTC\"\n[from-environment]\nNCCL_IB_SL = \"SITE_SL\"\n\
             [[only]]\nnccl-min = \"2.27\"\nvariables = { NCCL_IB_TC = \"105\", NCCL_IB_TIMEOUT = \"20\" }\n",
        )
        .unwrap();
        let profile = Profile { is_of_user: true, ..profile };
        let about: Vec<Vec<String>> =
            findings(&profile).into_iter().map(|finding| finding.about.variables).collect();
        assert_eq!(about, [["NCCL_IB_SL"], ["NCCL_IB_TC"], ["NCCL_IB_TIMEOUT"], ["SITE_IFNAME"]]);
        assert_eq!(findings(&Profile { is_of_user: false, ..profile }), []);
    }
}
