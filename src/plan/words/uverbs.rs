//! Device nodes, in words.

use crate::text::condensed_to;

/// The most runs of nodes to name.
const NAMED: usize = 8;

/// Returns a phrase for uverbs nodes of this container.
pub(crate) fn uverbs_nodes(nodes: &[String]) -> String {
    match nodes {
        [one] => format!("/dev/infiniband/{one}"),
        _ => format!("{} in /dev/infiniband", condensed_to(nodes, NAMED)),
    }
}

/// Returns a clause for devices whose nodes are here, and that are not.
pub(super) fn elsewhere(nodes: &[String]) -> String {
    let (s, are) = if nodes.len() == 1 { ("", "is") } else { ("s", "are") };
    format!("the RDMA device{s} of {} {are} in another network namespace", uverbs_nodes(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_in_their_directory() {
        let phrase = |nodes: &[&str]| {
            uverbs_nodes(&nodes.iter().map(|node| (*node).to_owned()).collect::<Vec<String>>())
        };
        assert_eq!(phrase(&["uverbs3"]), "/dev/infiniband/uverbs3");
        assert_eq!(phrase(&["uverbs4", "uverbs5", "uverbs6"]), "uverbs4..uverbs6 in /dev/infiniband");
    }
}
