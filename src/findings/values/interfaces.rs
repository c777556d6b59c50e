//! `NCCL_SOCKET_IFNAME`, and the interface that it makes NCCL's processes bootstrap on.

use super::{Decided, conf_file, lists, shown};
use crate::fabric::Candidate;
use crate::fabric::default_route::carries;
use crate::fabric::interface::{candidates, choose, has_global_address};
use crate::facts::net::Interface;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::interfaces::{self, Endpoint, Failure};
use crate::libraries::nccl::list::Pattern;
use crate::libraries::nccl::predict::{Bootstrap, Transport, predict};
use crate::libraries::nccl::version::REWROTE_PARSERS;
use crate::plan::over_tcp::{self, Nodes};
use crate::text::condensed;

const VARIABLE: &str = "NCCL_SOCKET_IFNAME";
const COMM_ID: &str = "NCCL_COMM_ID";

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let mut findings = Vec::new();
    if decided.facts.net.interfaces.is_empty() {
        return findings;
    }
    if let Some(setting) = decided.user.get(VARIABLE).filter(|setting| !setting.value.is_empty()) {
        findings.extend(check_list(decided, setting));
    }
    findings.extend(comm_id(decided).or_else(|| unreachable(decided)).or_else(|| on_a_rail(decided)));
    findings
}

fn check_list(decided: &Decided, setting: &UserSetting) -> Vec<Finding> {
    let library = decided.library();
    // `ncclFindInterfaces` checks the length of the value.
    if setting.value.len() == 1 {
        let message = format!(
            "{}: {library} ignores a value of one character, and chooses the interface itself.",
            shown(setting)
        );
        let fix = match decided.facts.net.interface(&setting.value) {
            Some(interface) => format!("Write {VARIABLE}=={}.", interface.name),
            None => "Write the whole name of the interface.".to_owned(),
        };
        return vec![Finding::warning(Id::OneCharacter, message).about_variables([VARIABLE]).with_fix(fix)];
    }
    let pattern = Pattern::of_interfaces(&setting.value, decided.version());
    let interfaces = &decided.facts.net.interfaces;
    let with_address: Vec<&str> = interfaces
        .iter()
        .filter(|interface| !interface.addresses.is_empty())
        .map(|interface| interface.name.as_str())
        .collect();
    let mut findings: Vec<Finding> = Vec::new();
    if !conf_file::is_cause(setting) {
        findings.extend(lists::separators(library, &pattern, setting));
        findings.extend(lists::repeated_signs(library, &pattern, setting));
    }
    findings.extend(lists::prefixes(&pattern, setting, &with_address));
    let fix = "Name a prefix that the interfaces share.";
    findings.extend(lists::dropped(decided, &pattern, setting, fix));
    let found = interfaces::first(&decided.facts.net, user_values(decided), decided.version());
    if found.is_err() {
        let is_down = |interface: &&Interface| {
            pattern.selects(&interface.name, None) && !interface.addresses.is_empty() && !interface.is_up()
        };
        let down: Vec<&str> = interfaces.iter().filter(is_down).map(|i| i.name.as_str()).collect();
        let why = match down.is_empty() {
            true => format!("those with an address are {}", condensed(&with_address)),
            false => format!(
                "{} {} not UP and RUNNING",
                condensed(&down),
                if down.len() == 1 { "is" } else { "are" }
            ),
        };
        findings.push(
            Finding::error(
                Id::StaleInterface,
                format!(
                    "{} matches no interface that {} takes ({why}); {library} will fail with \"no socket interface found\".",
                    shown(setting),
                    decided.nccl(),
                ),
            )
            .about_variables([VARIABLE])
            .about_interfaces(down)
            .with_fix(format!("Remove {VARIABLE}, or name an interface that is up and has an address.")),
        );
    }
    findings
}

pub(super) fn user_values<'a>(decided: &'a Decided) -> impl Fn(&str) -> Option<&'a str> {
    |name| decided.user.get(name).map(|setting| setting.value.as_str())
}

/// Reports a `NCCL_COMM_ID` that makes NCCL choose a wrong interface, or fail: NCCL chooses the interface in
/// the subnet of its address.
fn comm_id(decided: &Decided) -> Option<Finding> {
    let setting = decided.user.get(COMM_ID)?;
    // Without devices and without a platform, there is no network to configure.
    decided.prediction()?;
    let bootstrap = |version| interfaces::bootstrap(&decided.facts.net, user_values(decided), version);
    let (what, interfaces) = match bootstrap(decided.version()) {
        Ok(endpoint) => {
            // Only releases that compare the subnets the wrong way round choose a different interface.
            let right = bootstrap(REWROTE_PARSERS).ok();
            if right.as_ref() == Some(&endpoint) {
                return None;
            }
            let instead =
                right.as_ref().map(|right| format!(", not on {} {}", right.interface, right.address));
            let what = format!(
                "{} wrongly takes an interface outside the subnet of this address (fixed in {}.{}), and it will bootstrap on {} {}{}",
                decided.nccl(),
                REWROTE_PARSERS.major,
                REWROTE_PARSERS.minor,
                endpoint.interface,
                endpoint.address,
                instead.unwrap_or_default()
            );
            (what, [endpoint].into_iter().chain(right).map(|end| end.interface).collect())
        }
        Err(failure) => {
            let message = failure.message()?;
            let why = match failure {
                Failure::BadCommId => "it is not an address with a port",
                _ => "no interface is in the subnet of this address",
            };
            (format!("{why}, and {} will fail with \"{message}\"", decided.nccl()), Vec::new())
        }
    };
    Some(
        Finding::error(Id::CommId, format!("{}: {what}.", shown(setting)))
            .about_variables([COMM_ID])
            .about_interfaces(interfaces)
            .with_fix("Remove NCCL_COMM_ID; torchrun and MPI do not need it."),
    )
}

/// Why the job's other nodes cannot reach this one on an interface.
enum Obstacle {
    Loopback,
    /// A bridge that exists only on this host.
    Bridge,
    /// A link-local address, although another interface has one that other nodes can reach.
    LinkLocal,
    Down,
}

impl Obstacle {
    fn find(decided: &Decided, endpoint: &Endpoint) -> Option<Obstacle> {
        let net = &decided.facts.net;
        match net.interface(&endpoint.interface) {
            _ if endpoint.address.is_loopback() => Some(Obstacle::Loopback),
            _ if ["docker", "virbr"].iter().any(|prefix| endpoint.interface.starts_with(prefix)) => {
                Some(Obstacle::Bridge)
            }
            Some(interface) if !interface.is_up() => Some(Obstacle::Down),
            Some(interface) if is_of_this_node_alone(decided, interface) => Some(Obstacle::LinkLocal),
            _ => None,
        }
    }

    fn id(&self) -> Id {
        match self {
            Obstacle::Loopback | Obstacle::Bridge | Obstacle::LinkLocal => Id::LocalInterface,
            Obstacle::Down => Id::InterfaceDown,
        }
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Obstacle::Loopback | Obstacle::Bridge => "which no other node can reach",
            Obstacle::LinkLocal => "a link-local address, which other nodes cannot reach",
            Obstacle::Down => "which is not UP and RUNNING, so no other node can reach it",
        })
    }
}

/// Returns whether an interface has link-local addresses alone and is no cable to another node. EKS gives its
/// agent for Pod identities such an interface on each node (`pod-id-link0`, 169.254.170.23/32). A cable between
/// two machines may have link-local addresses on purpose: then it belongs to a rail, the user names it, or there is
/// nothing better.
fn is_of_this_node_alone(decided: &Decided, interface: &Interface) -> bool {
    !has_global_address(interface)
        && candidates(decided.facts).next().is_some()
        && rail_of(decided, &interface.name).is_none()
        && !is_named(decided, &interface.name)
}

/// Returns whether the user has written the interface's whole name.
fn is_named(decided: &Decided, interface: &str) -> bool {
    decided.user.get(VARIABLE).is_some_and(|setting| {
        let pattern = Pattern::of_interfaces(&setting.value, decided.version());
        !pattern.exclude && pattern.entries.iter().any(|entry| entry.name == interface)
    })
}

/// Reports an interface on which the job's other nodes cannot reach this one: that of the bootstrap, else one of
/// those that NCCL's sockets use for the data.
fn unreachable(decided: &Decided) -> Option<Finding> {
    let nodes = over_tcp::nodes(decided.facts);
    let is_likely = match decided.facts.platform.nodes {
        Some(nodes) if nodes.count == 1 => return None,
        _ if decided.plan.fabric.is_there() => true,
        // Without RDMA, the job may have only one node.
        _ => nodes? == Nodes::Several,
    };
    // The plan has no forecast for a host without RDMA whose job may have one node.
    let own = decided.plan.forecasts.is_empty() && decided.plan.profile.is_none();
    let own = own.then(|| predict(decided.facts, |name| decided.plan.value(name), decided.version()));
    let prediction = decided.prediction().or(own.as_ref())?;
    let get = |name: &str| decided.plan.value(name);
    let of_data = match &prediction.transport {
        Transport::Sockets { .. } => {
            interfaces::all(&decided.facts.net, get, decided.version()).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let bootstrap = match &prediction.bootstrap {
        Bootstrap::On(endpoint) => Some(endpoint),
        Bootstrap::Fails(_) | Bootstrap::DependsOnName(_) => None,
    };
    let with_obstacle = |endpoint| Some((endpoint, Obstacle::find(decided, endpoint)?));
    let (does, (endpoint, obstacle)) = match bootstrap.and_then(with_obstacle) {
        Some(found) => ("bootstrap on", found),
        None => ("also send data over", of_data.iter().find_map(with_obstacle)?),
    };
    // A job of one node needs no network, and its user may have kept it to lo.
    if !is_likely && (candidates(decided.facts).next().is_none() || is_named(decided, &endpoint.interface)) {
        return None;
    }
    let decided_by = |variable: &str| decided.user.get(variable).filter(|setting| setting.value.len() > 1);
    let by = decided_by(COMM_ID).or_else(|| decided_by(VARIABLE));
    let library = decided.library();
    let who = match by {
        Some(setting) => format!("Because of {}, {library}", shown(setting)),
        None => library.to_string(),
    };
    let fix = match by {
        Some(setting) if setting.variable == COMM_ID => format!("Remove {COMM_ID}."),
        Some(setting) if setting.value.starts_with('^') && !matches!(obstacle, Obstacle::LinkLocal) => {
            format!(
                "Set {VARIABLE} to the interface through which the nodes reach each other; ^ replaces {library}'s own exclusion of lo and docker."
            )
        }
        _ => format!("Set {VARIABLE} to the interface through which the nodes reach each other."),
    };
    let message = format!(
        "{who} will {does} {} {}, {obstacle}: a job of several nodes fails with \"Connection refused\" or a timeout.",
        endpoint.interface, endpoint.address
    );
    let finding = match is_likely {
        true => Finding::warning(obstacle.id(), message),
        false => Finding::info(obstacle.id(), message),
    };
    let finding = finding.about_variables(by.map(|setting| &setting.variable));
    Some(finding.about_interfaces([&endpoint.interface]).with_fix(fix))
}

/// What PAI publishes for Lingjun ("use a custom image"), where no rail has such a name.
const PUBLISHED: &str = "eth";

/// Reports a prefix, or an exclusion, that makes NCCL's processes bootstrap on a rail. A user who writes the
/// whole name of a rail's interface means it; and on InfiniBand, an IPoIB interface works
/// like any other.
fn on_a_rail(decided: &Decided) -> Option<Finding> {
    let setting = decided.user.get(VARIABLE).filter(|setting| setting.value.len() > 1)?;
    let Bootstrap::On(endpoint) = &decided.prediction()?.bootstrap else { return None };
    let pattern = Pattern::of_interfaces(&setting.value, decided.version());
    let better = choose(decided.facts)?;
    let rail = rail_of(decided, &endpoint.interface)?;
    if is_named(decided, &endpoint.interface)
        || decided.user.get(COMM_ID).is_some()
        || rail_of(decided, &better.name).is_some()
    {
        return None;
    }
    let selects = if pattern.exclude { "does not exclude" } else { "selects" };
    let publisher =
        if setting.value == PUBLISHED { " (PAI publishes this value for its Lingjun machines.)" } else { "" };
    let message = format!(
        "With {}, {} will bootstrap on the first interface that the list {selects}: {} {}, the interface of the rail {}. Other nodes may not reach this node there; {} {}.{publisher}",
        shown(setting),
        decided.library(),
        endpoint.interface,
        endpoint.address,
        rail.hca.name,
        better.name,
        better.because
    );
    let fix = format!("Write {VARIABLE}=={0}, or remove it, and rdma-init fills in {0}.", better.name);
    let finding = Finding::warning(Id::BootstrapOnRail, message).about_variables([VARIABLE]);
    let finding = finding.about_variables(better.because.variable()).about_ports([rail.name()]);
    Some(finding.about_interfaces([&endpoint.interface, &better.name]).with_fix(fix))
}

/// Returns the used RoCE port with this interface.
fn rail_of<'d>(decided: &'d Decided, interface: &str) -> Option<&'d Candidate<'d>> {
    decided.used_roce().find(|rail| carries(decided.facts, rail.hca, rail.port, interface))
}
