//! Finds values in an environment that a start filled in, according to their marker: a start on another node,
//! whose values a tool copied, or this container's.

use super::answer::{MARKER, lists, read_marker};
use super::decision;
use crate::facts::environment::{Environment, Filled};
use crate::facts::identity::Identity;
use crate::finding::Source;

/// Returns the variables that were copied from another start, and the marker that shows it.
pub(crate) fn of(environment: &Environment) -> Vec<Filled> {
    with_marker(environment, |marker| of_another(environment, marker, &decision::node()))
}

/// Returns the variables that this container's start filled in, and the marker that shows it. A process that
/// does not find the state recognizes them by the marker.
pub(crate) fn of_own_start(environment: &Environment) -> Vec<Filled> {
    with_marker(environment, |marker| of_start(environment, marker, &decision::node()))
}

fn with_marker(environment: &Environment, read: impl Fn(&str) -> Vec<Filled>) -> Vec<Filled> {
    match environment.get(MARKER) {
        // A node that cannot recognize its own marker would take its own values for copies.
        Some(marker) if Identity::own().is_whole() => read(marker),
        _ => Vec::new(),
    }
}

fn of_another(environment: &Environment, marker: &str, node: &str) -> Vec<Filled> {
    listed(environment, marker, |of| of != node.as_bytes())
}

fn of_start(environment: &Environment, marker: &str, node: &str) -> Vec<Filled> {
    listed(environment, marker, |of| of == node.as_bytes())
}

fn listed(environment: &Environment, marker: &str, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Filled> {
    let Some((_, list)) = read_marker(marker.as_bytes()).filter(|(of, _)| is_wanted(of)) else {
        return Vec::new();
    };
    let is_listed =
        |(name, value): &(&str, &str)| *name == MARKER || lists(list, name.as_bytes(), value.as_bytes());
    let found = environment.iter().filter(is_listed);
    found
        .map(|(name, value)| Filled {
            variable: name.to_owned(),
            value: value.to_owned(),
            source: Source::Facts,
            rule: "a start filled it in".to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::answer::hash;
    use super::*;

    #[test]
    fn copies_are_those_that_another_nodes_marker_lists_with_their_values() {
        let hash = |value: &str| String::from_utf8(hash(value.as_bytes()).into()).unwrap();
        let marker = format!(
            "1:ffff:IB_HCA={},IB_TC={},DEBUG={},.UCX_NET_DEVICES={},.RCCL_X={}",
            hash("=mlx5_7"),
            hash("106"),
            hash("INFO"),
            hash("mlx5_7:1"),
            hash("1")
        );
        let environment = Environment::from([
            ("PATH", "/bin"),
            ("NCCL_IB_HCA", "=mlx5_7"),
            ("NCCL_IB_TC", "41"),
            ("UCX_NET_DEVICES", "mlx5_7:1"),
            // The rest of the name of a variable of NCCL, with its value, is another variable.
            ("DEBUG", "INFO"),
            ("IB_HCA", "=mlx5_7"),
            ("NCCL_RCCL_X", "1"),
            ("RCCL_X", "1"),
            ("NCCL_ALGO", "INFO"),
            // A second entry of a name has a value of its own.
            ("NCCL_IB_HCA", "=mlx5_8"),
            (MARKER, &marker),
        ]);
        let all = |found: Vec<Filled>| -> Vec<String> { found.into_iter().map(|one| one.variable).collect() };
        let names = |marker: &str, node: &str| all(of_another(&environment, marker, node));
        let of_start = |marker: &str, node: &str| all(of_start(&environment, marker, node));
        let listed = ["NCCL_IB_HCA", "UCX_NET_DEVICES", "RCCL_X", MARKER];
        assert_eq!(names(&marker, "0a1b"), listed);
        assert!(names(&marker, "ffff").is_empty());
        assert_eq!(of_start(&marker, "ffff"), listed);
        assert!(of_start(&marker, "0a1b").is_empty());
        for broken in ["", "1", "2:ffff:IB_HCA=0", "yes"] {
            assert!(names(broken, "0a1b").is_empty() && of_start(broken, "").is_empty(), "{broken:?}");
        }
        assert!(of(&Environment::from([("NCCL_IB_HCA", "=mlx5_7")])).is_empty());
    }
}
