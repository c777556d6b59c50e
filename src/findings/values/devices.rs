//! The devices that NCCL uses for each connection, since 2.28: rails and planes in `NCCL_IB_HCA`, and
//! `NCCL_IB_SUBNET_AWARE_ROUTING`.

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};

use super::{Decided, shown};
use crate::fabric::own_slots;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::{LIST, bad_planes, taken};
use crate::libraries::nccl::number::integer;
use crate::libraries::nccl::version::REWROTE_PARSERS;
use crate::text::paired;

const BY_SUBNET: &str = "NCCL_IB_SUBNET_AWARE_ROUTING";
const PREFIX: &str = "NCCL_IB_SUBNET_PREFIX_LEN";

/// In bits: the part of two addresses that NCCL compares if [`PREFIX`] is not set
/// (`src/transport/net_ib/connect.cc`).
const USUAL_PREFIX: i64 = 24;

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(rails_of_old(decided));
    findings.extend(planes(decided));
    findings.extend(by_subnet(decided));
    findings
}

fn set<'s>(decided: &'s Decided, variable: &str) -> Option<&'s UserSetting> {
    decided.checked(variable).filter(|setting| !setting.value.is_empty())
}

/// Reports rails and planes in the list, which earlier releases ignore.
fn rails_of_old(decided: &Decided) -> Option<Finding> {
    decided.user.version().filter(|version| *version < REWROTE_PARSERS)?;
    let setting = decided.user.get(LIST)?;
    setting.value.split(',').any(|entry| entry.split(':').nth(2).is_some()).then(|| {
        let message = format!(
            "{}: {} does not read the rail and the plane behind a port; {} {}.{} and later do.",
            shown(setting),
            decided.nccl(),
            decided.library(),
            REWROTE_PARSERS.major,
            REWROTE_PARSERS.minor
        );
        Finding::info(Id::VariableOfOtherRelease, message).about_variables([LIST])
    })
}

/// Reports planes in the list that make NCCL give up on all HCAs.
fn planes(decided: &Decided) -> Option<Finding> {
    let setting = decided.verbs_setting(LIST)?;
    let (list, version) = (setting.value.as_str(), decided.version());
    let why = bad_planes(&taken(decided.facts, list, version, |_| true).ports, list, version)?;
    let message =
        format!("{why}, and {} then gives up on all HCAs: the job will run on TCP.", decided.nccl());
    let fix = "Number the planes from 0, and leave them out for HCAs of one plane.";
    Some(Finding::error(Id::OutOfRange, message).about_variables([LIST]).with_fix(fix))
}

/// Reports the prefix length by which NCCL distinguishes subnets, if it is not the length that the rails
/// have.
fn by_subnet(decided: &Decided) -> Option<Finding> {
    let version = decided.version();
    let setting = set(decided, BY_SUBNET)?;
    if integer(&setting.value, version).is_none_or(|number| number == 0) {
        return None;
    }
    let length = set(decided, PREFIX);
    let bits = length.and_then(|length| integer(&length.value, version)).unwrap_or(USUAL_PREFIX);
    let Some(bits) = u8::try_from(bits).ok().filter(|bits| (1..=32).contains(bits)) else {
        let message = format!(
            "{}: it must be 1 to 32, and {} fails at every RoCE connection otherwise.",
            shown(length?),
            decided.nccl()
        );
        let fix = format!("Set {PREFIX} to the prefix length of the rails, or remove it for {USUAL_PREFIX}.");
        return Some(Finding::error(Id::OutOfRange, message).about_variables([PREFIX]).with_fix(fix));
    };
    let of_length = match length {
        Some(length) => format!("as {} says", shown(length)),
        None => format!("because {PREFIX} is not set"),
    };
    let rails = rails(decided);
    let wide: Vec<&SubnetPort> = rails.iter().filter(|rail| rail.net.prefix_len() < bits).collect();
    let (why, about) = match seen_as_one(&rails, bits) {
        Some((one, other)) => {
            let why =
                format!("{} ({}) and {} ({}) look like one subnet", one.hca, one.net, other.hca, other.net);
            (why, vec![&one.port, &other.port])
        }
        None => {
            wide.first()?;
            let subnets: Vec<(&str, String)> =
                wide.iter().map(|rail| (rail.hca.as_str(), rail.net.trunc().to_string())).collect();
            let why =
                format!("peers in the subnets of {} look as if they were in other ones", paired(&subnets));
            (why, wide.iter().map(|rail| &rail.port).collect())
        }
    };
    let message = format!(
        "{}: {} compares the first {bits} bits of the addresses, {of_length}, and {why}: it may take an HCA that does not reach the peer.",
        shown(setting),
        decided.library()
    );
    let mut lengths: Vec<u8> = rails.iter().map(|rail| rail.net.prefix_len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let fix = match lengths.as_slice() {
        [one] => format!("Set {PREFIX}={one}, the prefix length of the rails."),
        _ => format!(
            "Give all rails subnets of one prefix length, and set {PREFIX} to it; or remove {BY_SUBNET}."
        ),
    };
    Some(
        Finding::warning(Id::SubnetPrefix, message)
            .about_variables([BY_SUBNET, PREFIX])
            .about_ports(about.into_iter().cloned())
            .with_fix(fix),
    )
}

/// A used port, with the IPv4 subnet of its GID.
struct SubnetPort {
    port: String,
    hca: String,
    net: Ipv4Net,
}

fn rails(decided: &Decided) -> Vec<SubnetPort> {
    let facts = decided.facts;
    let net_of = |address: Ipv4Addr| {
        facts.net.interfaces.iter().flat_map(|interface| &interface.addresses).find_map(|net| match net {
            IpNet::V4(net) if net.addr() == address => Some(*net),
            _ => None,
        })
    };
    let used = decided.ports.iter().filter(|port| port.is_used());
    used.filter_map(|port| {
        let address = own_slots(facts, port.port).into_iter().find_map(|gid| match gid.address() {
            std::net::IpAddr::V4(address) => Some(address),
            std::net::IpAddr::V6(_) => None,
        })?;
        Some(SubnetPort { port: port.name(), hca: port.hca.name.clone(), net: net_of(address)? })
    })
    .collect()
}

/// Returns two rails in different subnets whose addresses begin with the same bits.
fn seen_as_one(rails: &[SubnetPort], bits: u8) -> Option<(&SubnetPort, &SubnetPort)> {
    let cut = |net: &Ipv4Net| Ipv4Net::new(net.addr(), bits).map(|net| net.trunc()).ok();
    rails.iter().enumerate().find_map(|(place, one)| {
        let mut others = rails.iter().skip(place + 1);
        let other =
            others.find(|other| other.net.trunc() != one.net.trunc() && cut(&other.net) == cut(&one.net))?;
        Some((one, other))
    })
}
