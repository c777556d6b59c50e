//! The names of variables in a profile of the user, and in the key `keep`.

use std::collections::BTreeSet;

use super::values::names::{Name, judge};
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::libraries::{self, nccl::variables};
use crate::plan::{Context, SELECTION};
use crate::profiles::Profile;

pub(super) fn findings(context: &Context) -> Vec<Finding> {
    [check_profile(context.library(), &context.profile), check_keep(context)].concat()
}

fn check_profile(library: Flavor, profile: &Profile) -> Vec<Finding> {
    if !profile.is_of_user {
        return Vec::new();
    }
    let whole = |name: &&String| !name.contains('*');
    let others = profile.unset.iter().chain(profile.hands_off.iter().filter(whole)).map(String::as_str);
    let names: BTreeSet<&str> = profile.may_fill().chain(others).collect();
    names.into_iter().filter_map(|name| finding(library, profile, name)).collect()
}

/// Reports the names in `keep` that mean another variable, which is then not kept.
fn check_keep(context: &Context) -> Vec<Finding> {
    let may_be_filled = |name: &str| context.profile.may_fill().any(|filled| filled == name);
    let finding = |name: &String| {
        let (library, meant) =
            (context.library(), libraries::meant(name).or_else(|| find_filled(context, name))?);
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

/// Returns the variable that a name in `keep` means among those that rdma-init may fill in: the only one that begins
/// with it, or of NCCL's, ends with it, or one that is a slip or two away, even in the prefix.
fn find_filled(context: &Context, name: &str) -> Option<String> {
    if libraries::is_known(name) {
        return None;
    }
    let name = name.to_ascii_uppercase();
    let of_nccl = || SELECTION.iter().copied();
    let of_libraries = libraries::ALL.iter().flat_map(|library| library.filled).copied();
    let all: BTreeSet<&str> = of_nccl().chain(of_libraries).chain(context.profile.may_fill()).collect();
    // A single word is part of too many names.
    let part = Some(&name).filter(|name| name.contains('_'));
    let begins = part
        .and_then(|part| take_only(all.iter().copied().filter(|all| all.starts_with(&format!("{part}_")))));
    let ends = || part.and_then(|part| take_only(of_nccl().filter(|all| all.ends_with(&format!("_{part}")))));
    // Other makers' libraries have NCCL's names with a first letter of their own (HCCL_SOCKET_IFNAME).
    let near = || {
        let alike = all.iter().copied().filter(|all| all.get(..1) == name.get(..1));
        variables::nearest_of(alike, &name)
    };
    begins.or_else(ends).or_else(near).map(str::to_owned)
}

fn take_only<'n>(mut names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    names.next().filter(|_| names.next().is_none())
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
        check_profile(Flavor::Nccl, &profile).into_iter().map(|finding| finding.message).collect()
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
        let meant = |name: &str| {
            let options = Options { keep: [name.to_owned()].into(), ..Options::default() };
            let facts = Facts::default();
            let decided = plan::decide(&facts, &Profiles::load(None).unwrap(), &options);
            check_keep(&decided.context).into_iter().find_map(|finding| finding.fix)
        };
        for (name, wanted) in [
            ("NCCL_IB_HAC", "NCCL_IB_HCA"),
            ("ib_tc", "NCCL_IB_TC"),
            ("NCLL_IB_HCA", "NCCL_IB_HCA"),
            ("UXC_NET_DEVICES", "UCX_NET_DEVICES"),
            ("UCX_NET", "UCX_NET_DEVICES"),
            ("NCCL_SOCKET", "NCCL_SOCKET_IFNAME"),
            ("GID_INDEX", "NCCL_IB_GID_INDEX"),
        ] {
            assert_eq!(meant(name), Some(format!("Write it as {wanted} in keep, or remove it.")), "{name}");
        }
        for name in [
            "NCCL_IB_SL",
            "NCCL_IB",
            "NCCL_ASYNC_ERROR_HANDLING",
            "ACCL_IB_HCA",
            "CNCL_SOCKET_IFNAME",
            "HCCL_SOCKET_IFNAME",
            "UCCL_IB_HCA",
            "UCX_TLS",
            "HOST_IP",
            "MASTER_ADDR",
            "INDEX",
            "TZ",
            "",
        ] {
            assert_eq!(meant(name), None, "{name}");
        }
    }

    #[test]
    fn the_names_of_this_programs_profiles_are_known() {
        for profile in Profiles::load(None).unwrap().iter() {
            let profile = Profile { is_of_user: true, ..profile.clone() };
            assert_eq!(check_profile(Flavor::Nccl, &profile), [], "{}", profile.name);
        }
    }
}
