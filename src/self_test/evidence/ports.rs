//! The ports in use, and what their checks show.

use std::vec;

use super::Evidence;
use crate::fabric::own_slots;
use crate::facts::Facts;
use crate::facts::rdma::{Hca, LinkLayer, Port};
use crate::plan::Plan;
use crate::text::{condensed, grouped};

/// Returns the ports that the plan uses, as a list, because an iterator would add more code at each
/// use.
pub(crate) fn used<'a>(facts: &'a Facts, plan: &'a Plan) -> vec::IntoIter<(&'a Hca, &'a Port)> {
    let used = plan.ports.iter().filter(|verdict| verdict.used);
    let found = used.filter_map(|verdict| facts.port(&verdict.hca, verdict.port));
    found.collect::<Vec<_>>().into_iter()
}

/// Returns why the other ports are not used.
pub(crate) fn unused(_: &Facts, plan: &Plan) -> Evidence {
    let unused = plan.ports.iter().filter(|verdict| !verdict.used);
    let why = grouped(unused.map(|verdict| {
        let reason = verdict.reason.as_deref().unwrap_or("not wanted");
        (reason.to_owned(), verdict.name())
    }));
    match why.is_empty() {
        true => Evidence::skip("no port is left unused"),
        false => {
            Evidence::of(why.iter().map(|(reason, names)| format!("{} skipped: {reason}", condensed(names))))
        }
    }
}

pub(crate) fn uverbs(facts: &Facts, plan: &Plan) -> Evidence {
    each_used(facts, plan, &|hca, _| hca.uverbs.as_ref().map(|_| "the uverbs node can be opened".to_owned()))
}

pub(crate) fn state(facts: &Facts, plan: &Plan) -> Evidence {
    each_used(facts, plan, &|_, port| Some(format!("{}, {}", port.state, port.physical_state)))
}

pub(crate) fn device(facts: &Facts, plan: &Plan) -> Evidence {
    each_used(facts, plan, &|hca, port| {
        let driver = hca.driver.as_deref().unwrap_or("no driver");
        Some(format!("{driver}, {}", String::from(port.link_layer.clone())))
    })
}

pub(crate) fn rate(facts: &Facts, plan: &Plan) -> Evidence {
    each_used(facts, plan, &|_, port| Some(port.rate.clone()))
}

pub(crate) fn gid(facts: &Facts, plan: &Plan) -> Evidence {
    match used(facts, plan).any(|(_, port)| port.link_layer == LinkLayer::Ethernet) {
        false => Evidence::skip("no RoCE port is in use"),
        true => each_used(facts, plan, &|_, port| {
            let gid = own_slots(facts, port).into_iter().next()?;
            Some(format!("GID index {}, {}", gid.index, String::from(gid.kind.clone())))
        }),
    }
}

pub(crate) fn pkey(facts: &Facts, plan: &Plan) -> Evidence {
    match used(facts, plan).any(|(_, port)| port.link_layer == LinkLayer::InfiniBand) {
        false => Evidence::skip("no InfiniBand port is in use"),
        true => each_used(facts, plan, &|_, port| port.pkeys.as_ref().map(ToString::to_string)),
    }
}

pub(crate) fn traffic_class(facts: &Facts, plan: &Plan) -> Evidence {
    match used(facts, plan).any(|(_, port)| port.traffic_class.is_some()) {
        false => Evidence::skip("no traffic class is set on a port in use"),
        true => each_used(facts, plan, &|_, port| {
            let none = || "no traffic class is set".to_owned();
            Some(port.traffic_class.clone().map_or_else(none, String::from))
        }),
    }
}

pub(crate) fn route(facts: &Facts, plan: &Plan) -> Evidence {
    match rails(facts, plan).next() {
        None => Evidence::skip("no RoCE port with an interface of this container is in use"),
        Some(_) => {
            Evidence::of(rails(facts, plan).map(|(hca, interface, _)| format!("{}: {interface}", hca.name)))
        }
    }
}

/// Returns a line for each text that `say` returns, with the ports that have this text.
pub(crate) fn each_used(facts: &Facts, plan: &Plan, say: &dyn Fn(&Hca, &Port) -> Option<String>) -> Evidence {
    let said = grouped(used(facts, plan).filter_map(|(hca, port)| {
        let name = match hca.ports.len() {
            1 => hca.name.clone(),
            _ => format!("{}:{}", hca.name, port.number),
        };
        Some((say(hca, port)?, name))
    }));
    match (said.is_empty(), used(facts, plan).next()) {
        (_, None) => Evidence::skip("no port is in use"),
        (true, _) => Evidence::skip("the facts do not say"),
        _ => Evidence::of(lines(&said)),
    }
}

fn lines(said: &[(String, Vec<String>)]) -> Vec<String> {
    said.iter().map(|(text, names)| format!("{}: {text}", condensed(names))).collect()
}

/// Returns the interfaces that own the GIDs of the used RoCE ports, with their MTU in bytes.
pub(crate) fn rails<'a>(facts: &'a Facts, plan: &'a Plan) -> vec::IntoIter<(&'a Hca, &'a str, Option<u32>)> {
    let found = used(facts, plan).filter_map(|(hca, port)| {
        let gid = own_slots(facts, port).into_iter().next()?;
        let has = |net: &ipnet::IpNet| net.addr() == gid.address();
        let interface = facts.net.interfaces.iter().find(|i| i.addresses.iter().any(has))?;
        Some((hca, interface.name.as_str(), interface.mtu))
    });
    found.collect::<Vec<_>>().into_iter()
}
