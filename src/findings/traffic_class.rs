//! Traffic classes that contradict each other: a port's and a variable's, or those of two ports.

use crate::fabric::Candidate;
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id, Source};
use crate::libraries::traffic_class::{
    ALL, ClassVariable, GIN, HAS_CLASS_OF_GIN, HAS_GIN, NCCL, OF_GIN, OF_NCCL, OfPorts, QueuePairs, UCX,
    decimal, dscp, of_nccl, of_ports,
};
use crate::plan::{Plan, Setting, SettingOutcome, User};
use crate::text::condensed;

pub(super) fn findings(user: &User, ports: &[Candidate], plan: &Plan) -> Option<Finding> {
    match of_ports(ports) {
        OfPorts::One(class) => {
            let found: Vec<Contradiction> =
                ALL.into_iter().filter_map(|variable| contradiction(user, plan, variable, class)).collect();
            of_variables(ports, class, &found)
        }
        OfPorts::Differ(classes) => of_rails(plan, &classes),
        OfPorts::Unset | OfPorts::Unknown => None,
    }
}

/// A variable with another class than the ports.
struct Contradiction {
    variable: &'static ClassVariable,
    /// The setting with its source: `NCCL_IB_TC=106 (environment)`.
    set: String,
    /// The profile that publishes the value.
    profile: Option<String>,
    /// The part of the library whose queue pairs get the variable's class, if there is one.
    own: Option<&'static str>,
}

fn contradiction(
    user: &User,
    plan: &Plan,
    variable: &'static ClassVariable,
    of_ports: u8,
) -> Option<Contradiction> {
    let since = |release| plan.library.is_nccl() && plan.nccl.is_none_or(|version| version >= release);
    let of_user = user.get(variable.name).filter(|setting| setting.origin != Source::AtStart);
    let (value, set, profile) = match of_user {
        Some(setting) => (setting.value.as_str(), super::values::shown(setting), None),
        None => {
            let is_it = |setting: &&Setting| {
                setting.variable == variable.name && setting.outcome == SettingOutcome::Filled
            };
            let setting = plan.settings.iter().find(is_it)?;
            let Source::Profile(profile) = &setting.source else { return None };
            let value = setting.value.as_deref()?;
            let set = format!("{}={value} ({})", variable.name, setting.source);
            (value, set, Some(profile.clone()))
        }
    };
    let class = match variable {
        variable if [NCCL, GIN].contains(variable) => of_nccl(value)?,
        variable if *variable == UCX && value.eq_ignore_ascii_case("auto") => UCX.default,
        _ => decimal(value)?,
    };
    let own = match variable.queue_pairs {
        // Another finding covers a variable that this release does not read.
        QueuePairs::Own(_) if *variable == GIN && !since(HAS_CLASS_OF_GIN) => return None,
        QueuePairs::Own(own) if *variable == NCCL => {
            let is_class_of_gin = since(HAS_GIN) && plan.value(OF_GIN).is_none();
            is_class_of_gin.then_some(own)
        }
        QueuePairs::Own(own) => Some(own),
        QueuePairs::OfKernel => None,
    };
    (dscp(class) != dscp(of_ports)).then_some(Contradiction { variable, set, profile, own })
}

fn of_variables(ports: &[Candidate], class: u8, found: &[Contradiction]) -> Option<Finding> {
    if found.is_empty() {
        return None;
    }
    let used = ports.iter().filter(|port| port.is_used() && port.port.link_layer == LinkLayer::Ethernet);
    let (hcas, names): (Vec<&str>, Vec<String>) =
        used.map(|port| (port.hca.name.as_str(), port.name())).unzip();
    let sets: Vec<&str> = found.iter().map(|one| one.set.as_str()).collect();
    let set = sets.join(", ");
    let administrator = format!(
        "the administrator of this host has set the traffic class {} on {}, and the driver gives it to each queue pair that the kernel connects",
        with_dscp(class),
        condensed(&hcas)
    );
    let own: Vec<String> = found
        .iter()
        .filter_map(|one| Some(format!("{} ({}, {})", one.variable.library, one.own?, one.variable.name)))
        .collect();
    let finding = match own.is_empty() {
        true => {
            let does = if found.len() == 1 { "this value does" } else { "these values do" };
            Finding::info(Id::TrafficClass, format!("{set}: {does} nothing here, because {administrator}."))
        }
        false => {
            let message = format!(
                "{set}: {administrator}. Only queue pairs that a library connects itself get the class of its variable: those of {}. If DSCP {} alone is lossless in this network, they lose packets under load, and a GPU may wait for one of them forever.",
                own.join(", "),
                dscp(class)
            );
            Finding::warning(Id::TrafficClass, message)
        }
    };
    let from = |one: &Contradiction| match &one.profile {
        Some(profile) => format!("{} from the profile {profile}", one.variable.name),
        None => one.variable.name.to_owned(),
    };
    let remove: Vec<String> = found.iter().map(from).collect();
    Some(
        finding
            .about_variables(found.iter().map(|one| one.variable.name))
            .about_ports(names)
            .with_fix(format!(
                "Remove {}: rdma-init fills in what is needed. If another class is right for this network, ask the administrator to set it on the HCAs.",
                remove.join(", ")
            )),
    )
}

/// Returns the class and its DSCP: `236 (DSCP 59)`.
fn with_dscp(class: u8) -> String {
    format!("{class} (DSCP {})", dscp(class))
}

/// Reports rails whose packets have different classes. On a port without a class, the program decides.
fn of_rails(plan: &Plan, classes: &[(String, Option<u8>)]) -> Option<Finding> {
    let of_program = plan.value(OF_NCCL).and_then(of_nccl).unwrap_or(NCCL.default);
    let first = classes.iter().find_map(|(_, class)| *class)?;
    if classes.iter().all(|(_, class)| dscp(class.unwrap_or(of_program)) == dscp(first)) {
        return None;
    }
    let mut groups: Vec<(Option<u8>, Vec<&str>)> = Vec::new();
    for (name, class) in classes {
        match groups.iter_mut().find(|(known, _)| known == class) {
            Some((_, names)) => names.push(name),
            None => groups.push((*class, vec![name])),
        }
    }
    // If two classes are on the same number of ports, the first one counts.
    let most = groups.iter().filter(|(class, _)| class.is_some()).rev().max_by_key(|(_, names)| names.len());
    let right = most.and_then(|(class, _)| *class).unwrap_or(first);
    let said: Vec<String> = groups
        .iter()
        .map(|(class, names)| {
            let names = condensed(names);
            match class {
                Some(class) => format!("{} on {names}", with_dscp(*class)),
                None => format!("none on {names}, so {}'s class applies ({of_program})", plan.library),
            }
        })
        .collect();
    let message = format!(
        "The ports of the job have different traffic classes: {}. A network that has one lossless class drops packets of the others under load.",
        said.join("; ")
    );
    Some(
        Finding::warning(Id::TrafficClassesDiffer, message)
            .about_ports(classes.iter().map(|(name, _)| name.clone()))
            .with_fix(format!(
                "Ask the administrator to set one class on all of these ports, on the host: echo {right} > /sys/class/infiniband/HCA/tc/PORT/traffic_class."
            )),
    )
}
