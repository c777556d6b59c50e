//! Faults and what is slow, as sentences for people. Names come from other nodes, and are made fit to
//! be shown by [`Evidence`].

use std::collections::BTreeMap;

use super::culprit::{Fault, Place, What};
use super::evidence::{Evidence, Gone};
use super::names;
use super::outliers::{Figure, Slow, Who};
use crate::text::{condensed_to, counted, shortened, visible};

/// Names, or runs of names, in one sentence.
const NAMES: usize = 8;

/// What is at fault, and why.
pub fn fault(evidence: &Evidence, fault: &Fault) -> String {
    let name = |node: u32| evidence.name(node);
    let all = evidence.members().len();
    let said = match &fault.what {
        What::Gone { node, how } => return gone(evidence, *node, how),
        What::Unfit { node } => format!("{} has failed its own self-test", name(*node)),
        What::Node { node, failed, tried } => {
            let whom = match (failed, tried) {
                (failed, tried) if failed == tried => {
                    format!("each of the {} that it was tried with", counted(*tried, "node"))
                }
                (failed, tried) => {
                    format!("{failed} of the {} that it was tried with", counted(*tried, "node"))
                }
            };
            match &fault.place {
                Place::Meeting => format!("{} does not meet {whom} over TCP", name(*node)),
                Place::Whole => format!("{} fails on all rails with {whom}", name(*node)),
                Place::Rails(rails) => {
                    let names: Vec<String> =
                        rails.iter().map(|rail| evidence.rail_name(*node, *rail)).collect();
                    let verb = if rails.len() == 1 { "fails" } else { "fail" };
                    format!("{} {} {verb} with {whom}", name(*node), condensed_to(&names, NAMES))
                }
            }
        }
        What::Uneven { groups, usual } => uneven(evidence, groups, *usual),
        What::Link { nodes } => {
            let between = format!(
                "between {} and {}{}",
                name(nodes[0]),
                name(nodes[1]),
                on(evidence, &fault.place, nodes)
            );
            match all {
                2 => format!("{between}: of two nodes nobody can tell which one it is"),
                _ => format!("{between}: both are well with others"),
            }
        }
        What::Cut { nodes, others } => {
            let names: Vec<String> = nodes.iter().map(|node| name(*node)).collect();
            format!(
                "{} ({}) reach each other{}, and none of the other {others}",
                condensed_to(&names, NAMES),
                counted(nodes.len(), "node"),
                on(evidence, &fault.place, nodes)
            )
        }
        What::Apart { parts, alone } => apart(evidence, &fault.place, parts, *alone),
        What::Unsteady { nodes } => format!(
            "between {} and {}{}: failed, and passed when it was tried again",
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

fn gone(evidence: &Evidence, node: u32, how: &Gone) -> String {
    // Who never came may have no name, or one that nobody knows.
    let name = evidence.name(node);
    let index = format!("node {node}");
    let name = if name == index || names::is_numbered(&name) { name } else { format!("{name} ({index})") };
    match how {
        Gone::NeverCame(time) => format!("{name} has not come within {}", visible(time)),
        Gone::Left(how) => format!("{name} has left: {}", visible(&shortened(how))),
        Gone::Silent(how) => format!("{name} does not answer: {}", visible(&shortened(how))),
    }
}

/// `gpu-07 brings 7 rails, where the other 31 nodes bring 8`
fn uneven(evidence: &Evidence, groups: &BTreeMap<usize, Vec<u32>>, usual: Option<usize>) -> String {
    let who = |nodes: &[u32]| {
        let names: Vec<String> = nodes.iter().map(|node| evidence.name(*node)).collect();
        condensed_to(&names, NAMES)
    };
    let bring = |rails: &usize, nodes: &Vec<u32>| {
        let verb = if nodes.len() == 1 { "brings" } else { "bring" };
        format!("{} {verb} {}", who(nodes), counted(*rails, "rail"))
    };
    let others = groups.iter().filter(|(rails, _)| Some(**rails) != usual);
    let odd: Vec<String> = others.map(|(rails, nodes)| bring(rails, nodes)).collect();
    match usual.and_then(|usual| Some((usual, groups.get(&usual)?.len()))) {
        Some((usual, nodes)) => {
            let others = match nodes {
                1 => "the other node brings".to_owned(),
                nodes => format!("the other {nodes} nodes bring"),
            };
            format!("{}, where {others} {usual}", odd.join(", "))
        }
        None => format!("the nodes have different numbers of rails: {}", odd.join(", ")),
    }
}

fn apart(evidence: &Evidence, place: &Place, parts: &[Vec<u32>], alone: usize) -> String {
    let there = |node: &u32| !evidence.gone().contains_key(node);
    let nodes: Vec<u32> = (0..evidence.members().len() as u32).filter(there).collect();
    let on = on(evidence, place, &nodes);
    if parts.is_empty() {
        return format!("nobody reaches anybody{on} ({})", counted(alone, "node"));
    }
    let names = |part: &Vec<u32>| {
        let names: Vec<String> = part.iter().map(|node| evidence.name(*node)).collect();
        condensed_to(&names, NAMES)
    };
    let mut shown: Vec<String> = parts.iter().take(NAMES).map(names).collect();
    if parts.len() > NAMES {
        shown.push(format!("{} more parts", parts.len() - NAMES));
    }
    let alone = if alone == 0 { String::new() } else { format!("; {} reach nobody", counted(alone, "node")) };
    format!("the job is in parts that do not reach each other{on}: {}{alone}", shown.join(" | "))
}

/// ` on rail 3 (mlx5_3)`: the name where all of these nodes call it so.
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

/// `rail 3 (mlx5_3)`, or `rail 3` where the nodes call it differently.
pub fn rail_of(evidence: &Evidence, rail: usize, nodes: &[u32]) -> String {
    let mut names = nodes.iter().map(|node| evidence.rail_name(*node, rail));
    let number = format!("rail {rail}");
    match names.next() {
        Some(first) if first != number && names.all(|name| name == first) => format!("{number} ({first})"),
        _ => number,
    }
}

/// What helps.
pub fn fix(fault: &Fault) -> &'static str {
    match (&fault.what, &fault.place) {
        (What::Gone { how: Gone::NeverCame(_), .. }, _) => {
            "See whether it was started, whether it resolves the name of node 0 and reaches its port, and whether it has the same RDMA_INIT_TOKEN; its own log says for whom it waits."
        }
        (What::Gone { .. }, _) => "See in its own log, and in the kernel's, what has ended or stopped it.",
        (What::Uneven { .. }, _) => {
            "Run rdma-init plan on one node of each kind: it says which HCAs or interfaces NCCL will use there, and why it leaves others out."
        }
        (What::Unfit { .. }, _) => "Run rdma-init self-test there.",
        (_, Place::Meeting) => {
            "A firewall, a wrong interface or a route between the hosts: see ip route get, and the interface that NCCL will use."
        }
        (What::Node { .. }, Place::Whole) => {
            "Leave the node out, and run rdma-init self-test there: GIDs, MTU, driver, and the routes of its interfaces."
        }
        (What::Node { .. }, _) => {
            "Look at the cable, the port, the GID and the MTU of this rail on this node."
        }
        (What::Link { .. } | What::Unsteady { .. }, _) => {
            "Look at the links and switches on the way between the two: counters of errors, routes, MTU."
        }
        (What::Cut { .. }, _) => "Look at the switch that these nodes share, and at its links to the others.",
        (What::Apart { .. }, _) => {
            "This is the fabric as a whole: see whether switches let this MTU and UDP 4791 (RoCE) pass, whether there are routes between the rails' subnets, and whether all have one GID type."
        }
    }
}

/// Who is slow, and how slow.
pub fn slow(evidence: &Evidence, slow: &Slow) -> String {
    let (who, best) = match slow.who {
        Who::Node { node, rail } => {
            (format!("{} {}", evidence.name(node), evidence.rail_name(node, rail)), " at best")
        }
        Who::Link { nodes, rail } => {
            let names = nodes.map(|node| evidence.name(node));
            (format!("between {} and {} on {}", names[0], names[1], rail_of(evidence, rail, &nodes)), "")
        }
        Who::Rail { rail } => (format!("{} on most nodes", rail_of(evidence, rail, &[0])), ""),
    };
    let usual = match slow.who {
        _ if slow.is_wanted => format!("{} is wanted", figure(slow.figure, slow.usual)),
        Who::Rail { .. } => format!("other rails have {}", figure(slow.figure, slow.usual)),
        _ => format!("others have {}", figure(slow.figure, slow.usual)),
    };
    format!("{who}: {}{best}, where {usual}", figure(slow.figure, slow.value))
}

/// `390 Gbit/s`, `2.4 us there and back`.
pub fn figure(figure: Figure, value: f32) -> String {
    match figure {
        Figure::Bandwidth => format!("{} Gbit/s", number(value)),
        Figure::Latency => format!("{} us there and back", number(value)),
    }
}

/// `0.05 s`, `14.2 s`
pub fn seconds(value: f64) -> String {
    if value < 9.995 { format!("{value:.2} s") } else { format!("{value:.1} s") }
}

/// Three digits that count.
pub fn number(value: f32) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        // A network that is so slow still differs from one that is slower.
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
