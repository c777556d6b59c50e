//! Faults and slow nodes, links and rails, as sentences for people. Names come from other nodes, and
//! [`Evidence`] makes them safe to show.

use std::collections::BTreeMap;

use crate::preflight::judge::culprit::{Fault, Place, What};
use crate::preflight::judge::evidence::{Evidence, Gone};
use crate::preflight::judge::outliers::{Basis, Figure, Slow, Who};
use crate::preflight::who::addresses::{Duplicate, Loopback};
use crate::preflight::who::names;
use crate::preflight::who::own::{Network, SOCKETS};
use crate::preflight::who::scheduler::Name;
use crate::text::{condensed_to, counted, grouped, shortened, visible};

/// The most names, or runs of names, in one sentence.
const NAMES: usize = 8;

/// The most different lists of ports, or reasons for sockets, in one sentence.
const NETWORKS: usize = 3;

/// Returns what is faulty, and why.
pub(crate) fn fault(evidence: &Evidence, fault: &Fault) -> String {
    let name = |node: u32| evidence.name(node);
    let all = evidence.members().len();
    let said = match &fault.what {
        What::Gone { node, how } => return gone(evidence, *node, how),
        What::Owes { node, owed, of } => {
            let of = counted(*of, "pair");
            format!(
                "{} owes {owed} of its {of}: it is connected, but has not reported their results",
                name(*node)
            )
        }
        What::Unfinished { .. } => {
            format!("{}, and then the time ran out", tried(evidence))
        }
        What::Unreached { joined, within } => return unreached(evidence, *joined, within),
        What::Unfit { node } => format!("{} failed its own self-test", name(*node)),
        What::Node { node, failed, tried } => {
            let whom = match (failed, tried) {
                (failed, tried) if failed == tried => {
                    format!("each of the {} that it was tested with", counted(*tried, "node"))
                }
                (failed, tried) => {
                    format!("{failed} of the {} that it was tested with", counted(*tried, "node"))
                }
            };
            match &fault.place {
                Place::Meeting if failed == tried => format!(
                    "{} connects to none of the {} that it was tested with over TCP",
                    name(*node),
                    counted(*tried, "node")
                ),
                Place::Meeting => format!("{} does not connect to {whom} over TCP", name(*node)),
                Place::Whole => format!("{} fails on all rails with {whom}", name(*node)),
                Place::Rails(rails) => {
                    let verb = if rails.len() == 1 { "fails" } else { "fail" };
                    format!("{} {} {verb} with {whom}", name(*node), rail_names(evidence, *node, rails))
                }
            }
        }
        What::Contested { node, nodes: [one, other] } => {
            format!(
                "two nodes joined with the index {node}: {one}, and {other}; neither is trusted over the other"
            )
        }
        What::Mixed { verbs, sockets, .. } => mixed(evidence, verbs, sockets),
        What::Uneven { groups, usual } => uneven(evidence, groups, *usual),
        What::Duplicate(shared) => duplicate(evidence, shared),
        What::Loopback(own) => loopback(evidence, own),
        What::Link { nodes } => {
            let between = format!(
                "between {} and {}{}",
                name(nodes[0]),
                name(nodes[1]),
                on(evidence, &fault.place, nodes)
            );
            match all {
                2 => format!("{between}: with only two nodes, the faulty one cannot be identified"),
                _ => format!("{between}: both pass with other peers"),
            }
        }
        What::Cut { nodes, others } => {
            format!(
                "{} ({}) reach each other{}, but none of the other {others}",
                node_names(evidence, nodes),
                counted(nodes.len(), "node"),
                on(evidence, &fault.place, nodes)
            )
        }
        What::Partial { nodes, others, failed, tried } => {
            format!(
                "{} ({}) reach the other {others} only in part{}: {failed} of the {tried} pairs between them fail",
                node_names(evidence, nodes),
                counted(nodes.len(), "node"),
                on(evidence, &fault.place, nodes)
            )
        }
        What::Flapping { node, failed, tried } => {
            let which = match &fault.place {
                Place::Meeting => "over TCP".to_owned(),
                Place::Whole => "on all rails".to_owned(),
                Place::Rails(rails) => rail_names(evidence, *node, rails),
            };
            format!(
                "{} {which} is intermittent: {failed} of the {} that it was tested with failed with it, and some of these passed in another try",
                name(*node),
                counted(*tried, "node")
            )
        }
        What::Apart { parts, alone, through } => apart(evidence, &fault.place, parts, *alone, through),
        What::Scattered { pairs, tried, sides } => {
            scattered(evidence, &fault.place, pairs, *tried, sides.as_ref())
        }
        What::Unsteady { nodes } => format!(
            "between {} and {}{}: failed, then passed when retried",
            name(nodes[0]),
            name(nodes[1]),
            on(evidence, &fault.place, nodes)
        ),
    };
    match fault.why.as_str() {
        "" => said,
        why => format!("{said}: {}", visible(&shortened(why))),
    }
}

/// Returns `82 pairs were tried` or `20 of 55 pairs were tried`.
pub(crate) fn tried(evidence: &Evidence) -> String {
    let (tried, scheduled) = (evidence.tried(), evidence.scheduled());
    let verb = if scheduled == 1 { "was" } else { "were" };
    match tried == scheduled {
        true => format!("{} {verb} tried", counted(tried, "pair")),
        false => format!("{tried} of {} {verb} tried", counted(scheduled, "pair")),
    }
}

fn gone(evidence: &Evidence, node: u32, how: &Gone) -> String {
    // A node that never joined may have no name, or an unknown one.
    let name = evidence.name(node);
    let index = format!("node {node}");
    let name = if name == index || names::is_numbered(&name) { name } else { format!("{name} ({index})") };
    match how {
        Gone::NeverJoined(time) => {
            let why =
                evidence.explanation(node).map(|known| format!(": {}", visible(&shortened(&known.why))));
            format!("{name} did not join within {}{}", visible(time), why.unwrap_or_default())
        }
        Gone::Left(how) => format!("{name} disconnected: {}", visible(&shortened(how))),
        Gone::Silent(how) => format!("{name} does not answer: {}", visible(&shortened(how))),
    }
}

/// Returns a clause: `gpu-07 and gpu-09 have the same address on rail 3 (mlx5_3): 10.0.3.7`.
pub(crate) fn duplicate(evidence: &Evidence, shared: &Duplicate) -> String {
    let names: Vec<String> = shared.nodes.iter().map(|node| evidence.name(*node)).collect();
    let (who, word) = match (&names[..], &shared.addresses[..]) {
        ([one, other], [_]) => (format!("{one} and {other}"), "address"),
        ([one, other], _) => (format!("{one} and {other}"), "addresses"),
        (_, [_]) => (condensed_to(&names, NAMES), "address"),
        _ => (condensed_to(&names, NAMES), "addresses"),
    };
    let on = on(evidence, &Place::Rails(shared.rails.clone()), &shared.nodes);
    let addresses: Vec<String> = shared.addresses.iter().take(NAMES).map(ToString::to_string).collect();
    format!("{who} have the same {word}{on}: {}", addresses.join(", "))
}

/// Returns a clause: `gpu-07 has a loopback address on rail 0 (lo), which no other node can reach: 127.0.0.1`.
pub(crate) fn loopback(evidence: &Evidence, own: &Loopback) -> String {
    let on = on(evidence, &Place::Rails(own.rails.clone()), &own.nodes);
    let what = if own.nodes.len() == 1 { "has a loopback address" } else { "have loopback addresses" };
    let addresses: Vec<String> = own.addresses.iter().take(NAMES).map(ToString::to_string).collect();
    format!(
        "{} {what}{on}, which no other node can reach: {}",
        node_names(evidence, &own.nodes),
        addresses.join(", ")
    )
}

/// Returns a clause: `NCCL will use verbs on 1 of 3 nodes (gpu-0: mlx5_0:1) and sockets on 2 (gpu-1, gpu-2: there is no
/// RDMA device in this container), so its ranks do not connect`.
fn mixed(evidence: &Evidence, verbs: &[u32], sockets: &[u32]) -> String {
    let groups_in = |nodes: &[u32]| {
        let detail = |node: &u32| match &evidence.members().get(*node as usize)?.network {
            Network::Verbs(text) | Network::Sockets(text) => Some((text, evidence.name(*node))),
            Network::Unknown => None,
        };
        let groups = grouped(nodes.iter().filter_map(detail));
        let more = groups.len().saturating_sub(NETWORKS);
        let shown = groups.iter().take(NETWORKS);
        let shown = shown.map(|(text, names)| format!("{}: {text}", condensed_to(names, NAMES)));
        let more = (more > 0).then(|| format!("and {more} more"));
        shown.chain(more).collect::<Vec<_>>().join("; ")
    };
    format!(
        "NCCL will use verbs on {} of {} ({}) and sockets on {} ({}), so its ranks do not connect",
        verbs.len(),
        counted(evidence.members().len(), "node"),
        groups_in(verbs),
        sockets.len(),
        groups_in(sockets)
    )
}

/// Returns a clause: `gpu-07 brings 7 rails, but the other 31 nodes bring 8`.
fn uneven(evidence: &Evidence, groups: &BTreeMap<usize, Vec<u32>>, usual: Option<usize>) -> String {
    let bring = |rails: &usize, nodes: &Vec<u32>| {
        let verb = if nodes.len() == 1 { "brings" } else { "bring" };
        format!("{} {verb} {}", node_names(evidence, nodes), counted(*rails, "rail"))
    };
    let others = groups.iter().filter(|(rails, _)| Some(**rails) != usual);
    let odd: Vec<String> = others.map(|(rails, nodes)| bring(rails, nodes)).collect();
    match usual.and_then(|usual| Some((usual, groups.get(&usual)?.len()))) {
        Some((usual, nodes)) => {
            let others = match nodes {
                1 => "the other node brings".to_owned(),
                nodes => format!("the other {nodes} nodes bring"),
            };
            format!("{}, but {others} {usual}", odd.join(", "))
        }
        None => format!("the nodes have different numbers of rails: {}", odd.join(", ")),
    }
}

/// Returns the names of rails of a node.
fn rail_names(evidence: &Evidence, node: u32, rails: &[usize]) -> String {
    let names: Vec<String> = rails.iter().map(|rail| evidence.rail_name(node, *rail)).collect();
    condensed_to(&names, NAMES)
}

/// Returns the names of nodes.
fn node_names(evidence: &Evidence, nodes: &[u32]) -> String {
    let names: Vec<String> = nodes.iter().map(|node| evidence.name(*node)).collect();
    condensed_to(&names, NAMES)
}

/// Returns a clause: `no node reaches node 0 at 10.0.0.1:18516: 1 of 32 nodes joined within 10m`.
fn unreached(evidence: &Evidence, joined: usize, within: &str) -> String {
    let shown = |text: &str| visible(&shortened(text));
    // Nodes that have joined can resolve it.
    let unresolved = evidence.unresolved().filter(|_| joined < 2);
    let place = match (evidence.meeting_place(), unresolved) {
        ("", _) => String::new(),
        (place, None) => format!(" at {}", shown(place)),
        (place, Some(why)) => {
            format!(" at {} (node 0 itself cannot resolve this name: {})", shown(place), shown(why))
        }
    };
    let all = counted(evidence.members().len(), "node");
    let missing: Vec<(&u32, &Gone)> =
        evidence.gone().iter().filter(|(_, how)| matches!(how, Gone::NeverJoined(_))).collect();
    let within = visible(within);
    match (joined, &missing[..]) {
        (_, [(node, how)]) => format!("no node reaches node 0{place}: {}", gone(evidence, **node, how)),
        (0 | 1, _) => {
            format!("no node reaches node 0{place}: within {within}, none of the others joined ({all})")
        }
        _ => format!(
            "most nodes do not reach node 0{place}: {joined} of {all} joined within {within}, with node 0"
        ),
    }
}

/// Returns a clause: `some paths on rail 3 (mlx5_3) fail between gpu-00..gpu-15 and gpu-16..gpu-31: 12
/// of 80 pairs, ...`.
fn scattered(
    evidence: &Evidence,
    place: &Place,
    pairs: &[[u32; 2]],
    tried: usize,
    sides: Option<&[Vec<u32>; 2]>,
) -> String {
    let nodes: Vec<u32> = pairs.iter().flatten().copied().collect();
    let on = on(evidence, place, &nodes);
    let between = sides.map_or_else(String::new, |sides| {
        let [low, high] = [0, 1].map(|side| node_names(evidence, &sides[side]));
        format!(" between {low} and {high}")
    });
    let names: Vec<String> =
        pairs.iter().take(NAMES).map(|pair| pair.map(|node| evidence.name(node)).join(" - ")).collect();
    let more = pairs.len().saturating_sub(NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "some paths{between} fail{on}: {} of {tried} pairs, and no single node explains it: {}{more}",
        pairs.len(),
        names.join(", ")
    )
}

fn apart(evidence: &Evidence, place: &Place, parts: &[Vec<u32>], alone: usize, through: &[u32]) -> String {
    let there = |node: &u32| !evidence.gone().contains_key(node);
    let nodes: Vec<u32> = (0..evidence.members().len() as u32).filter(there).collect();
    let on = on(evidence, place, &nodes);
    if parts.is_empty() {
        return format!("no node reaches another{on} ({})", counted(alone, "node"));
    }
    let mut shown: Vec<String> = parts.iter().take(NAMES).map(|part| node_names(evidence, part)).collect();
    if parts.len() > NAMES {
        shown.push(format!("{} more parts", parts.len() - NAMES));
    }
    let shown = shown.join(" | ");
    let alone =
        if alone == 0 { String::new() } else { format!("; {} reach no other", counted(alone, "node")) };
    let names = node_names(evidence, through);
    match (through, parts) {
        ([], _) => format!("the job is in parts that do not reach each other{on}: {shown}{alone}"),
        (_, [_, _]) => {
            format!(
                "the job is in two groups, which reach each other{on} only through {names}: {shown}{alone}"
            )
        }
        _ => format!(
            "the job is in parts that do not reach each other{on}, or only through {names}: {shown}{alone}"
        ),
    }
}

/// Returns ` on rail 3 (mlx5_3)`, with the name if all of these nodes use it.
fn on(evidence: &Evidence, place: &Place, nodes: &[u32]) -> String {
    match place {
        Place::Whole => " on all rails".to_owned(),
        Place::Meeting => " over TCP, before any rail".to_owned(),
        Place::Rails(rails) => {
            let rails: Vec<String> = rails.iter().map(|rail| rail_of(evidence, *rail, nodes)).collect();
            format!(" on {}", condensed_to(&rails, NAMES))
        }
    }
}

/// Returns how many rails were tested: `8 rails`, or `1 rail over TCP (eth0)` with the names that all nodes use.
pub(crate) fn rails(evidence: &Evidence, transport: &str) -> String {
    let rails = counted(evidence.rails(), "rail");
    if transport != SOCKETS || evidence.rails() == 0 {
        return rails;
    }
    let mut lists = evidence.members().iter().map(|member| &member.rails).filter(|names| !names.is_empty());
    let first = lists.next().filter(|first| lists.all(|names| names == *first));
    let names = first.map(|names| format!(" ({})", visible(&condensed_to(names, NAMES))));
    format!("{rails} over TCP{}", names.unwrap_or_default())
}

/// Returns `rail 3 (mlx5_3)`, or `rail 3` if the nodes use different names.
pub(crate) fn rail_of(evidence: &Evidence, rail: usize, nodes: &[u32]) -> String {
    let mut names = nodes.iter().map(|node| evidence.rail_name(*node, rail));
    let number = format!("rail {rail}");
    match names.next() {
        Some(first) if first != number && names.all(|name| name == first) => format!("{number} ({first})"),
        _ => number,
    }
}

/// Returns why a scheduler is not told to exclude a node, as a clause.
pub(crate) fn unlisted(evidence: &Evidence, node: u32) -> String {
    let shown = |name: &str| visible(&shortened(name));
    if evidence.contested().contains_key(&node) {
        return format!("two nodes joined with the index {node}");
    }
    match evidence.members().get(node as usize).map(|member| &member.of_launcher) {
        None | Some(Name::Unknown) => {
            "the launcher does not give node 0 the names of the nodes, and node 0 never lists a name that only the node itself reports".to_owned()
        }
        Some(Name::Differs(name)) => {
            format!("the launcher lists {} for the index {node}, but not all nodes report the names that it lists", shown(name))
        }
        Some(Name::Shared(name)) => format!("more than one node is named {}", shown(name)),
        Some(Name::Launcher(name)) => format!("{} is not a host name", shown(name)),
    }
}

/// How to fix an index that two nodes have.
pub(crate) const OWN_INDEX: &str = "Give each node its own index (--node, before a command preflight-node, or the launcher's variable). If one of the two nodes is not yours, set one RDMA_INIT_TOKEN on all nodes of the job.";

/// Returns how to fix a fault.
pub(crate) fn fix(evidence: &Evidence, fault: &Fault) -> &'static str {
    if let What::Gone { node, how: Gone::NeverJoined(_) } = &fault.what
        && let Some(known) = evidence.explanation(*node)
    {
        return known.fix;
    }
    match (&fault.what, &fault.place) {
        (What::Gone { how: Gone::NeverJoined(_), .. }, _) => {
            "Check that it was started, that it resolves the name of node 0 and reaches its port, and that it has the same RDMA_INIT_TOKEN; its log shows what it is waiting for."
        }
        (What::Unreached { joined: 0 | 1, .. }, _) if evidence.unresolved().is_some() => {
            "Make the name resolve on all nodes (DNS, /etc/hosts), or give them all an address of node 0 (--meet, before a command preflight-meet). Their logs show why their connections failed."
        }
        (What::Unreached { .. }, _) => {
            "Check that the others can reach this address and port of node 0 (firewalls, routes, network policies), or name another one of its addresses on all nodes (--meet, before a command preflight-meet). Their logs show why their connections failed."
        }
        (What::Gone { .. }, _) => "Check its log and the kernel log for why it exited or stalled.",
        (What::Owes { .. }, _) => {
            "Check its own log, and whether its processor is free for the preflight: another job may be running there."
        }
        (What::Contested { .. }, _) => OWN_INDEX,
        (What::Unfinished { .. }, _) => {
            "Try fewer pairs (without --rounds full), or give each of them less time (--each)."
        }
        (What::Uneven { .. }, _) => {
            "Run rdma-init plan on one node of each kind: it shows which HCAs or interfaces NCCL will use there, and why it skips others."
        }
        (What::Mixed { .. }, _) => {
            "Run rdma-init plan on one of the nodes with sockets: it shows why NCCL will not use RDMA there. For a job over TCP, set NCCL_IB_DISABLE=1 on all nodes."
        }
        (What::Unfit { .. }, _) => "Run rdma-init self-test there.",
        (What::Duplicate(_), _) => {
            "Give each of these nodes its own address: check ip address there, and what configures it (DHCP, netplan, the CNI plugin)."
        }
        (What::Loopback(_), _) => {
            "Look at ip -br address there: NCCL takes lo if no other interface is up with a carrier and an address, or if NCCL_SOCKET_IFNAME says so."
        }
        (_, Place::Meeting) => {
            "Check firewalls, the route between the hosts (ip route get), and the interface that NCCL will use."
        }
        (What::Flapping { .. }, _) => {
            "Check the cable, the transceiver and the port of this rail on this node, and what the kernel log says of its link."
        }
        (What::Scattered { .. }, _) => {
            "Check the switches between these nodes: uplinks that are down or drop packets, and how ECMP or adaptive routing spreads paths over them."
        }
        (What::Node { .. }, Place::Whole) => {
            "Exclude the node, and run rdma-init self-test there: GIDs, MTU, driver, and the routes of its interfaces."
        }
        (What::Node { .. }, _) => "Check the cable, the port, the GID and the MTU of this rail on this node.",
        (What::Link { .. } | What::Unsteady { .. }, _) => {
            "Check the links and switches between the two: error counters, routes, MTU."
        }
        (What::Cut { .. }, _) => "Check the switch that these nodes share, and its links to the others.",
        (What::Partial { .. }, _) => {
            "Check the switch that these nodes share, and its uplinks: one that is down, flaps or drops packets, and how ECMP or adaptive routing spreads paths over them."
        }
        (What::Apart { .. }, _) => {
            "The whole fabric is affected: check that the switches forward this MTU and UDP 4791 (RoCE), that there are routes between the rails' subnets, and that all rails have one GID type."
        }
    }
}

/// Returns which node or pair is slow, and how slow.
pub(crate) fn slow(evidence: &Evidence, slow: &Slow) -> String {
    let best = if slow.figure == Figure::Resent { "" } else { " at best" };
    let (who, extent) = match slow.who {
        Who::Node { node, rail } => {
            let who = format!("{} {}", evidence.name(node), evidence.rail_name(node, rail));
            let [bad, all] = slow.with;
            let with = match bad == all {
                true if slow.figure == Figure::Resent => format!(" to and from {}", counted(all, "node")),
                true => best.to_owned(),
                false => format!("{best} with {bad} of the {} that it was tested with", counted(all, "node")),
            };
            (who, with)
        }
        Who::Link { nodes, rail } => {
            let names = nodes.map(|node| evidence.name(node));
            let who = format!("between {} and {} on {}", names[0], names[1], rail_of(evidence, rail, &nodes));
            (who, String::new())
        }
        Who::Group { group, rail } => {
            let nodes: Vec<u32> = group.members().collect();
            let who = format!(
                "between {} ({}) and the others on {}",
                node_names(evidence, &nodes),
                counted(nodes.len(), "node"),
                rail_of(evidence, rail, &nodes)
            );
            let [bad, all] = slow.with;
            (who, format!(" in {bad} of {}", counted(all, "pair")))
        }
        Who::Rail { rail } => (format!("{} on most nodes", rail_of(evidence, rail, &[0])), String::new()),
    };
    let usual = figure(slow.figure, slow.usual);
    let usual = match (slow.basis, slow.who) {
        (Basis::Wanted, _) => format!("{usual} is wanted"),
        (Basis::Rate, Who::Node { .. }) => format!("its port has {usual}"),
        (Basis::Rate, _) => format!("the ports have {usual}"),
        (Basis::Others, Who::Rail { .. }) => format!("other rails have {usual}"),
        (Basis::Others, _) => format!("others have {usual}"),
    };
    let check = match slow.who {
        Who::Group { .. } => "; check the switch that these nodes share, and its uplinks",
        Who::Node { .. } | Who::Link { .. } | Who::Rail { .. } => "",
    };
    format!("{who}: {}{extent}, but {usual}{check}", figure(slow.figure, slow.value))
}

/// Returns a figure with its unit: `390 Gbit/s`, `2.4 us there and back`, `1.1 % of packets sent
/// again`.
pub(crate) fn figure(figure: Figure, value: f32) -> String {
    match figure {
        Figure::Bandwidth => format!("{} Gbit/s", number(value)),
        Figure::Latency => format!("{} us there and back", number(value)),
        Figure::Resent => format!("{} % of packets sent again", number(value)),
    }
}

/// Returns a time with its unit: `0.05 s`, `14.2 s`.
pub(crate) fn seconds(value: f64) -> String {
    if value < 9.995 { format!("{value:.2} s") } else { format!("{value:.1} s") }
}

/// Returns a number with three significant digits.
pub(crate) fn number(value: f32) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        // A very slow network must still differ from a slower one.
        value if value > 0.0 && value < 0.0995 => format!("{value:.4}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_of_any_size_have_digits_that_count() {
        let said = [0.0, 0.0023, 0.05, 0.25, 2.4, 94.7, 385.2].map(number);
        assert_eq!(said, ["0.00", "0.0023", "0.0500", "0.25", "2.40", "94.7", "385"]);
    }
}
