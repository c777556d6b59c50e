//! Tests nodes that connect to others while their interface accepts no connections from others.

use super::interfaces::{accuses, passes};
use crate::support::namespace::{can_be_made, has_nft};
use crate::support::nodes::Nodes;

/// Returns a chain with this rule for connections that arrive at `eth1`.
fn for_connections(rule: &str) -> String {
    format!(
        "table inet refusing {{ chain in {{ type filter hook input priority 0; \
         iifname eth1 tcp flags & (syn | ack) == syn {rule}; }}\n }}"
    )
}

#[test]
fn a_node_that_fails_as_the_listener_alone_is_named_wherever_it_is() {
    if !can_be_made() || !has_nft() {
        return;
    }
    for (node, rule, why) in [
        (0, "reject with tcp reset", "Connection refused"),
        (1, "reject with tcp reset", "Connection refused"),
        (2, "drop", "no answer for 5 s"),
    ] {
        let nodes = Nodes::new(3, 2);
        nodes.nft(node, &for_connections(rule));
        let said = accuses(&nodes, &format!("node{node} eth1"), "node");
        let only = format!(": {why} (os error 111); the connection in the other direction works");
        assert!(said.contains(&only.replace("s (os error 111)", "s")), "{said}");
        nodes.nft(node, "delete table inet refusing");
        passes(&nodes);
    }
}
