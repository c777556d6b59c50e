//! The decision for this node, in the format that the shared object reads, and the marker that travels with
//! the values.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;

use hmac_sha256::Hash;

use super::answer::{self, MOST_DEVICES, MOST_VARIABLES};
use crate::facts::Facts;
use crate::facts::identity::Identity;
use crate::facts::secret::is_secret;
use crate::finding::Source;
use crate::libraries::nccl::conf;
use crate::libraries::nccl::env_plugin::{VARIABLE, is_asked};
use crate::plan::{Plan, Setting, SettingOutcome};

/// Returns a word that identifies this start of this container and reveals nothing else about it.
pub(crate) fn node() -> String {
    name(Identity::own(), fs::metadata("/").map(|root| (root.dev(), root.ino())).ok())
}

/// Returns a hash of the identity. It omits the mount namespace, because a process in the container may have
/// its own (`unshare --mount`). The root directory's file system and inode distinguish containers that share
/// a PID namespace.
fn name(identity: &Identity, root: Option<(u64, u64)>) -> String {
    let Identity { boot, namespace, mounts: _, init_started } = identity;
    let hash = Hash::hash(format!("{boot} {namespace} {init_started:?} {root:?}").as_bytes());
    hash[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the decision. It contains no values from files that are not world-readable.
pub(crate) fn text(plan: &Plan, facts: &Facts, node: &str) -> String {
    // If the boot ID cannot be read, this text matches no ID that a process could read.
    let boot = Some(Identity::own().boot.as_str()).filter(|boot| !boot.is_empty()).unwrap_or("-");
    let mut lines = vec!["rdma-init env plugin 1".to_owned(), format!("node {node}"), format!("boot {boot}")];
    let filled: Vec<(&str, &str)> = of_nccl(plan).collect();
    lines.extend(filled.iter().map(|(name, value)| format!("set {name}={value}")));
    let given: Vec<(&str, &str)> = plan.inherited().chain(plan.public()).collect();
    lines.extend(plan.settings.iter().filter(|setting| is_of_user(setting)).map(|setting| {
        let name = setting.variable.as_str();
        let is_it = |(known, value): &&(&str, &str)| *known == name && conf::fits(name, value);
        let given = given.iter().find(is_it).map(|(_, value)| ("user", *value));
        match given.or_else(|| Some(("conf", of_conf_file(setting, facts)?))) {
            Some((kind, value)) => format!("{kind} {name}={value}"),
            None => format!("user {name}"),
        }
    }));
    lines.truncate(MOST_VARIABLES);
    let is_used = |hca: &str| plan.ports.iter().any(|port| port.used && port.hca == hca);
    let known = |field: &Option<String>| field.clone().unwrap_or_else(|| "-".to_owned());
    let hcas = facts.rdma.iter().filter(|hca| is_used(&hca.name));
    lines.extend(
        hcas.take(MOST_DEVICES)
            .map(|hca| format!("hca {} {} {}", hca.name, known(&hca.node_guid), known(&hca.pci_address))),
    );
    let interfaces = facts.net.interfaces.iter().filter(|interface| interface.pci_address.is_some());
    lines.extend(
        interfaces
            .take(MOST_DEVICES)
            .map(|one| format!("interface {} - {}", one.name, known(&one.pci_address))),
    );
    lines.extend(plan.late.iter().filter_map(|late| {
        let hca = facts.rdma.iter().find(|hca| hca.name == late.hca)?;
        let (guid, pci) = (known(&hca.node_guid), known(&hca.pci_address));
        Some(format!("late {} {} {} {guid} {pci}", late.entry, late.number, hca.name))
    }));
    lines.push("end\n".to_owned());
    lines.join("\n")
}

/// Returns the value of [`MARKER`], which lists the variables that this node filled in, including the one
/// that names the shared object. NCCL's own variables come first: a conf file may not hold the rest
/// ([`answer::beginning`]).
pub(crate) fn marker(plan: &Plan, node: &str, library: &str) -> String {
    let mut marker = format!("1:{node}:");
    let of_others = own(plan).filter(|(name, _)| !is_asked(name));
    for (name, value) in [(VARIABLE, library)].into_iter().chain(of_nccl(plan)).chain(of_others) {
        let hash = answer::hash(value.as_bytes()).map(char::from).iter().collect::<String>();
        let separator = if marker.ends_with(':') { "" } else { "," };
        let (before, name) = answer::in_marker(name);
        marker += &format!("{separator}{before}{name}={hash}");
    }
    marker
}

/// Returns the NCCL or RCCL variables that rdma-init itself fills in.
fn of_nccl(plan: &Plan) -> impl Iterator<Item = (&str, &str)> {
    own(plan).filter(|(name, value)| is_asked(name) && conf::fits(name, value))
}

/// Returns the variables that rdma-init itself fills in. Variables from its configuration are the user's.
fn own(plan: &Plan) -> impl Iterator<Item = (&str, &str)> {
    let is_own = |name: &str| {
        let setting = plan.settings.iter().find(|setting| setting.variable == name);
        setting.is_some_and(|setting| setting.source != Source::Configuration)
    };
    plan.public().filter(move |(name, _)| is_own(name))
}

/// Returns whether the user set the variable. A variable that rdma-init must not set (`keep`) has no user
/// value.
fn is_of_user(setting: &Setting) -> bool {
    let is_set = match setting.outcome {
        SettingOutcome::User => true,
        SettingOutcome::Filled => setting.source == Source::Configuration,
        SettingOutcome::Left | SettingOutcome::Unset => false,
    };
    is_set && is_asked(&setting.variable)
}

/// Returns the value if it is in the user's world-readable conf file.
fn of_conf_file<'a>(setting: &'a Setting, facts: &Facts) -> Option<&'a str> {
    setting.source.conf_file()?;
    let is_private =
        facts.settings.0.iter().any(|known| {
            known.private && known.variable == setting.variable && known.origin == setting.source
        });
    let value = setting.value.as_deref()?;
    let is_exact = !value.contains('\u{fffd}') && conf::fits(&setting.variable, value);
    (is_exact && !is_private && !is_secret(&setting.variable)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env_plugin::answer::{Answer, Arena, Decision, Present, Settled};
    use crate::facts::settings::{Settings, UserSetting};
    use crate::plan::{Options, decide};
    use crate::profiles::Profiles;

    fn of_conf(variable: &str, private: bool) -> UserSetting {
        let origin = Source::ConfFile { path: "/etc/nccl.conf".to_owned(), line: 1 };
        UserSetting { private, ..UserSetting::new(variable, "of-conf", origin) }
    }

    fn host() -> Facts {
        let text = include_str!("../demo/acs-type1.json");
        let facts = crate::facts::document::Document::parse(text).unwrap();
        let of_user = [
            UserSetting::new("NCCL_DEBUG", "INFO", Source::Environment),
            UserSetting::new("NCCL_API_KEY", "secret-value", Source::Environment),
            UserSetting::new("UCX_TLS", "rc", Source::Environment),
            of_conf("NCCL_ALGO", false),
            of_conf("NCCL_PROTO", true),
        ];
        Facts { settings: Settings(of_user.into()), ..facts }
    }

    #[test]
    fn the_shared_object_reads_what_is_written() {
        let facts = host();
        let set = [("NCCL_IB_TC".to_owned(), "1".to_owned())].into();
        let keep = ["NCCL_IB_SL".to_owned()].into();
        let options = Options { set, keep, ..Options::default() };
        let plan = decide(&facts, &Profiles::load(None).unwrap(), &options).plan;
        let text = text(&plan, &facts, "0a1b");
        assert!(!text.contains("secret-value") && !text.contains("UCX"), "{text}");
        assert!(text.contains("\nuser NCCL_DEBUG=INFO\n") && text.contains("\nhca "), "{text}");
        assert!(text.contains("\nuser NCCL_IB_TC=1\n"), "{text}");
        assert!(
            text.contains("\nconf NCCL_ALGO=of-conf\n") && text.contains("\nuser NCCL_PROTO\n"),
            "{text}"
        );
        let decision = Decision::parse(text.as_bytes()).unwrap();
        let mut memory = vec![0; 4096];
        let settled =
            Settled::new(&decision, Present::default(), &|_, _| false, &mut Arena::new(&mut memory)).unwrap();
        // A value that this node's user set replaces a copy of another node's value.
        let hash = answer::hash(b"copied").map(char::from).iter().collect::<String>();
        let of_copy = |name: &str| {
            let marker = format!("1:ffff:{name}={hash}");
            settled.answer(format!("NCCL_{name}").as_bytes(), Some(b"copied"), Some(marker.as_bytes()))
        };
        for (name, wanted) in [("IB_TC", "1"), ("ALGO", "of-conf"), ("DEBUG", "INFO")] {
            let answer = of_copy(name);
            assert!(matches!(answer, Answer::Decided(now) if now.to_bytes() == wanted.as_bytes()), "{name}");
        }
        // Only NCCL may know a private value. A variable in `keep` has no value.
        assert_eq!((of_copy("PROTO"), of_copy("IB_SL")), (Answer::OfProcess, Answer::Unset));
        let filled: Vec<(&str, &str)> = of_nccl(&plan).collect();
        assert!(filled.iter().any(|(name, _)| *name == "NCCL_IB_HCA"), "{filled:?}");
        let marker = |node| marker(&plan, node, "/opt/state/libnccl-env.so");
        let (marker_of_other, own_marker) = (marker("ffff"), marker("0a1b"));
        let of_library = |value: &str| {
            answer::is_copy(marker_of_other.as_bytes(), b"0a1b", VARIABLE.as_bytes(), value.as_bytes())
        };
        assert!(of_library("/opt/state/libnccl-env.so") && !of_library("/opt/site/libnccl-env.so"));
        for (name, value) in filled {
            let answer = settled.answer(name.as_bytes(), None, None);
            assert!(matches!(answer, Answer::Decided(now) if now.to_bytes() == value.as_bytes()), "{name}");
            let copied =
                |marker: &str| answer::is_copy(marker.as_bytes(), b"0a1b", name.as_bytes(), value.as_bytes());
            assert!(copied(&marker_of_other) && !copied(&own_marker), "{name}");
        }
    }

    #[test]
    fn a_node_has_one_name() {
        let name = node();
        assert!(name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        assert_eq!(node(), name);
    }

    #[test]
    fn containers_of_a_host_have_names_of_their_own_and_mount_namespaces_of_a_container_have_not() {
        let own = Identity {
            boot: "b".to_owned(),
            namespace: "pid:[1]".to_owned(),
            mounts: "mnt:[2]".to_owned(),
            init_started: Some(7),
        };
        let of = |identity: Identity| name(&identity, Some((40, 2)));
        let unshared = Identity { mounts: "mnt:[3]".to_owned(), ..own.clone() };
        assert_eq!(of(own.clone()), of(unshared.clone()));
        for other in [
            of(Identity { boot: "c".to_owned(), ..own.clone() }),
            of(Identity { namespace: "pid:[4]".to_owned(), ..own.clone() }),
            of(Identity { init_started: Some(8), ..own.clone() }),
            // A Pod's containers may share a PID namespace, including PID 1.
            name(&unshared, Some((41, 2))),
            name(&unshared, Some((40, 3))),
        ] {
            assert_ne!(of(own.clone()), other);
        }
    }
}
