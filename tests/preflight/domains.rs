//! Tests nodes whose resource claims (DRA) report that they do not share a fabric.

use serde_json::Value;

use super::faults::{document, run};
use super::job::Job;
use crate::support::namespace::can_be_made;
use crate::support::nodes::Nodes;

/// Gives a node a claim whose device has these attributes, as a driver writes it.
fn give_claim(nodes: &Nodes, node: usize, attributes: &[(&str, &str)]) {
    let attributes: Vec<String> =
        attributes.iter().map(|(name, value)| format!(r#""{name}":{{"string":"{value}"}}"#)).collect();
    let metadata = format!(
        r#"{{"apiVersion":"metadata.resource.k8s.io/v1alpha1","kind":"DeviceMetadata","requests":[{{"name":"nic","devices":[{{"name":"nic-0","driver":"dra.net","attributes":{{{}}}}}]}}]}}"#,
        attributes.join(",")
    );
    let script = r#"mount -t tmpfs tmpfs "$(readlink -f /var/run)" &&
        cd /var/run && mkdir -p "$0" && printf %s "$1" >"$0/dra.net-metadata.json""#;
    let folder = "kubernetes.io/dra-device-attributes/resourceclaims/rails/nic";
    let mut shell = nodes.on(node, "sh".as_ref());
    assert!(shell.args(["-c", script, folder, &metadata]).status().unwrap().success());
}

/// Runs a job whose nodes have these attributes in their claims, and returns the warnings about differences.
fn differences(claims: &[&[(&str, &str)]]) -> Vec<String> {
    let nodes = Nodes::new(claims.len(), 2);
    for (node, attributes) in claims.iter().enumerate().filter(|(_, attributes)| !attributes.is_empty()) {
        give_claim(&nodes, node, attributes);
    }
    let ended = run(&nodes, &Job::of(claims.len() as u32), 1, &[]);
    assert!(ended.iter().all(|node| node.code == Some(0)), "{ended:#?}");
    let document = document(&ended[0]).unwrap();
    let warnings = document["warnings"].as_array().unwrap().iter().map(Value::as_str);
    warnings
        .map(|warning| warning.unwrap().to_owned())
        .filter(|warning| warning.contains(" differs: "))
        .collect()
}

#[test]
fn nodes_of_several_placement_groups_or_nvlink_domains_are_told() {
    if !can_be_made() {
        return;
    }
    const GROUP: &str = "azure.dra.net/placementGroupId";
    const DOMAIN: &str = "oke.dra.net/gpuMemoryFabricId";
    let group = differences(&[&[(GROUP, "c6c7")], &[(GROUP, "739e")], &[(GROUP, "c6c7")]]);
    assert_eq!(
        group,
        [
            "placement-group differs: c6c7 on 2 nodes, 739e on node1; nodes of different placement groups share no InfiniBand, so start all nodes of the job in one placement group or scale set"
        ]
    );
    let domain = differences(&[&[(DOMAIN, "abya")], &[(DOMAIN, "abyb")]]);
    assert_eq!(domain, ["nvlink-domain differs: abya on node0, abyb on node1"]);
    // No driver has to report these, so a node without them is no different.
    let same = [(GROUP, "c6c7"), (DOMAIN, "abya")];
    assert!(differences(&[&same, &same, &[]]).is_empty());
    assert!(differences(&[&same, &same, &[(GROUP, ""), (DOMAIN, "")]]).is_empty());
}
