//! The user's own values: what NCCL will really do with them. They are never
//! changed.

use crate::facts::Facts;
use crate::facts::gid::GidType;
use crate::facts::rdma::{LinkLayer, Port};
use crate::facts::settings::UserSetting;
use crate::nccl::list::Pattern;
use crate::nccl::number::strtoll;
use crate::plan::{Fabric, Finding, Options, User, own_slots, visible_to_nccl};

pub fn findings(facts: &Facts, options: &Options, fabric: &Fabric) -> Vec<Finding> {
    let user = User::new(facts, options);
    let mut findings = Vec::new();
    // Elsewhere NCCL does not look at it.
    if matches!(fabric, Fabric::Verbs | Fabric::None(_)) {
        findings.extend(hcas(facts, &user));
    }
    findings.extend(interface(facts, &user));
    findings.extend(gid_index(facts, &user));
    findings.extend(bit_field(&user, "NCCL_IB_RETRY_CNT", 3));
    findings.extend(bit_field(&user, "NCCL_IB_TIMEOUT", 5));
    findings.extend(timeout(&user));
    findings
}

fn shown(setting: &UserSetting) -> String {
    format!("{}={} ({})", setting.variable, setting.value, setting.origin)
}

/// Names in `NCCL_IB_HCA` that are not here.
fn hcas(facts: &Facts, user: &User) -> Option<Finding> {
    let (pattern, setting) = user.hcas()?;
    if pattern.exclude || user.ib_disabled().is_some() {
        return None;
    }
    let missing: Vec<String> = pattern
        .entries
        .iter()
        .filter(|entry| {
            let alone = Pattern { entries: vec![(*entry).clone()], ..pattern.clone() };
            !facts
                .rdma
                .iter()
                .any(|hca| hca.ports.iter().any(|port| alone.selects(&hca.name, Some(port.number))))
        })
        .map(|entry| match entry.port {
            Some(port) => format!("{}:{port}", entry.name),
            None => entry.name.clone(),
        })
        .collect();
    if missing.is_empty() {
        return None;
    }
    let with_space = missing.iter().any(|name| name.trim() != name);
    let here: Vec<&str> = facts.rdma.iter().map(|hca| hca.name.as_str()).collect();
    let here = if here.is_empty() { "no HCA".to_owned() } else { here.join(", ") };
    let any_left = pattern.entries.len() > missing.len();
    let consequence = match (any_left, with_space) {
        (_, true) => "the space belongs to the name for NCCL",
        (true, false) => "NCCL goes without them",
        (false, false) => "NCCL finds none and falls back to TCP without a word",
    };
    let fix = match (with_space, facts.rdma.is_empty()) {
        (true, _) => "Write the names in NCCL_IB_HCA without spaces.",
        (false, true) => "Remove NCCL_IB_HCA, or give the container its RDMA devices.",
        (false, false) => "Remove NCCL_IB_HCA, and the usable HCAs are filled in.",
    };
    Some(
        Finding::warning(
            "stale-hca",
            format!(
                "{} names {}, which this container does not have (it has {here}); {consequence}.",
                shown(setting),
                shown_names(&missing)
            ),
        )
        .with_fix(fix),
    )
}

/// `NCCL_SOCKET_IFNAME` that matches nothing is a hard failure in NCCL.
fn interface(facts: &Facts, user: &User) -> Option<Finding> {
    let setting = user.get("NCCL_SOCKET_IFNAME")?;
    // One character or none means automatic choice (`ncclFindInterfaces`).
    if setting.value.len() < 2 || facts.net.interfaces.is_empty() {
        return None;
    }
    let pattern = Pattern::parse(&setting.value);
    let with_address: Vec<&str> = facts
        .net
        .interfaces
        .iter()
        .filter(|interface| !interface.addresses.is_empty())
        .map(|interface| interface.name.as_str())
        .collect();
    if with_address.iter().any(|name| pattern.selects(name, None)) {
        return None;
    }
    Some(
        Finding::error(
            "stale-interface",
            format!(
                "{} matches no interface with an address (there are {}); NCCL will end with \"no socket interface found\".",
                shown(setting),
                with_address.join(", ")
            ),
        )
        .with_fix("Remove NCCL_SOCKET_IFNAME, or name one of these."),
    )
}

/// `NCCL_IB_GID_INDEX` that points at no GID of ours.
fn gid_index(facts: &Facts, user: &User) -> Option<Finding> {
    let setting = user.get("NCCL_IB_GID_INDEX")?;
    let index = u32::try_from(strtoll(&setting.value)?).ok().filter(|_| !setting.value.is_empty())?;
    if user.ib_disabled().is_some() {
        return None;
    }
    let wrong: Vec<String> = facts
        .rdma
        .iter()
        .flat_map(|hca| hca.ports.iter().map(move |port| (hca, port)))
        .filter(|(hca, port)| port.link_layer == LinkLayer::Ethernet && visible_to_nccl(hca, port))
        .filter(|(hca, port)| {
            user.hcas().is_none_or(|(pattern, _)| pattern.selects(&hca.name, Some(port.number)))
        })
        .filter_map(|(hca, port)| Some(format!("{} {}", hca.name, what_is_wrong(facts, port, index)?)))
        .collect();
    if wrong.is_empty() {
        return None;
    }
    Some(
        Finding::warning(
            "gid-index",
            format!("{} is wrong here: {}. RoCE will not connect there.", shown(setting), wrong.join("; ")),
        )
        .with_fix("Remove NCCL_IB_GID_INDEX, and the right one is filled in."),
    )
}

fn what_is_wrong(facts: &Facts, port: &Port, index: u32) -> Option<String> {
    let right = own_slots(facts, port);
    if right.iter().any(|gid| gid.index == index) {
        return None;
    }
    let there = match port.gids.slots.iter().find(|gid| gid.index == index) {
        None => "is empty".to_owned(),
        Some(gid) if gid.is_link_local() => "is link-local".to_owned(),
        Some(gid) if gid.kind == GidType::IbOrRoceV1 => "is RoCE v1".to_owned(),
        Some(gid) => format!("is {}, not an address of this container", gid.address()),
    };
    let instead = right.first().map(|gid| format!(", slot {} is right", gid.index)).unwrap_or_default();
    Some(format!("slot {index} {there}{instead}"))
}

/// A field of so many bits in the queue pair (InfiniBand specification, modify QP).
fn bit_field(user: &User, variable: &str, bits: u32) -> Option<Finding> {
    let setting = user.get(variable)?;
    let value = strtoll(&setting.value)?;
    let most = (1i64 << bits) - 1;
    if setting.value.is_empty() || (0..=most).contains(&value) {
        return None;
    }
    Some(
        Finding::warning(
            "out-of-range",
            format!(
                "{} is out of range: the field has {bits} bits, 0 to {most}; an HCA that keeps the low bits acts as if it were {}.",
                shown(setting),
                value & most
            ),
        )
        .with_fix(format!("Set a value from 0 to {most}, or remove it for NCCL's default.")),
    )
}

/// What the number means, as pages that advise another one get NCCL's default wrong.
fn timeout(user: &User) -> Option<Finding> {
    let setting = user.get("NCCL_IB_TIMEOUT")?;
    let value = u32::try_from(strtoll(&setting.value)?).ok().filter(|value| (1..=31).contains(value))?;
    let seconds = 4.096e-6 * f64::from(1u32 << value);
    Some(Finding::info(
        "ib-timeout",
        format!(
            "{} lets each try of a lost packet wait {seconds:.2} s, with up to 7 more; NCCL's own value is 20 since 2.23, 18 since 2.14, 14 before.",
            shown(setting)
        ),
    ))
}

/// With quotes where a space would not be seen.
fn shown_names(names: &[String]) -> String {
    let quoted = |name: &String| if name.trim() == name { name.clone() } else { format!("{name:?}") };
    names.iter().map(quoted).collect::<Vec<_>>().join(", ")
}
