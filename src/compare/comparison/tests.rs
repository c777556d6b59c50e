use super::*;
use serde_json::json;

fn brief(nccl: Option<&str>, hcas: &[(&str, u32, &str)]) -> Brief {
    let hca = |&(hca, port, rate): &(&str, u32, &str)| {
        json!({"hca": hca, "port": port, "rate": rate, "link_layer": "InfiniBand", "driver": null,
               "firmware": null, "gid_type": null, "gid_index": null, "mtu": null})
    };
    let hcas: Vec<_> = hcas.iter().map(hca).collect();
    serde_json::from_value(json!({"schema": "", "host": "", "passed": true, "hcas": hcas, "nccl": nccl,
        "profile": null, "filled": {}, "checks": []}))
    .unwrap()
}

fn of<'a>(comparison: &'a Comparison, property: &str) -> &'a Compared<'a> {
    comparison.properties.iter().find(|compared| compared.property == property).unwrap()
}

#[test]
fn a_node_that_gets_another_name_is_compared_under_that_one() {
    let mut nodes = ComparedNodes::default();
    for (host, nccl) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
        nodes.add(host, &brief(Some(nccl), &[]));
    }
    nodes.rename("a", "a (node 0)");
    nodes.rename("nobody", "somebody");
    let comparison = nodes.compare();
    assert_eq!((comparison.nodes, &*comparison.differing), (3, &["a (node 0)"][..]));
    assert_eq!((comparison.repeated, comparison.contradicted), (vec!["a (node 0)"], vec!["a (node 0)"]));
}

#[test]
fn nodes_of_an_nvlink_domain_have_one_channel_and_others_do_not_count() {
    let node = |channels: Option<&str>, clique: Option<&str>| {
        let mut report = brief(Some("1"), &[]);
        report.nvlink = channels.map(|channels| crate::self_test::report::Nvlink {
            channels: channels.to_owned(),
            clique: clique.map(str::to_owned),
        });
        report
    };
    let mut nodes = ComparedNodes::default();
    for (host, channels, clique) in
        [("a", Some("0"), None), ("b", Some("0"), None), ("c", Some("none"), Some("ID=7")), ("x", None, None)]
    {
        nodes.add(host, &node(channels, clique));
    }
    let comparison = nodes.compare();
    let others = |property| &of(&comparison, property).others;
    assert_eq!(others("imex-channels")[0].nodes, ["c"]);
    assert_eq!(
        (others("nvlink-clique")[0].value, &*others("nvlink-clique")[0].nodes),
        (Some("ID=7"), &["c"][..])
    );
    assert_eq!(comparison.differing, ["c"]);
}

/// Not every node has a claim that reports these.
#[test]
fn a_node_of_another_placement_group_or_nvlink_domain_is_odd_and_nodes_without_one_do_not_count() {
    type Set = fn(&mut Brief, Option<String>);
    let fields: [(&str, Set); 2] = [
        ("placement-group", |report, value| report.placement_group = value),
        ("nvlink-domain", |report, value| report.nvlink_domain = value),
    ];
    for (property, set) in fields {
        let with = |values: &[Option<&str>]| {
            let mut nodes = ComparedNodes::default();
            for (host, value) in ["a", "b", "c", "d"].into_iter().zip(values) {
                let mut report = brief(Some("1"), &[]);
                set(&mut report, value.map(str::to_owned));
                nodes.add(host, &report);
            }
            nodes
        };
        let nodes = with(&[Some("739e"), Some("739e"), Some("c6c7"), None]);
        let comparison = nodes.compare();
        let compared = of(&comparison, property);
        assert_eq!(compared.majority, Some(Majority { value: Some("739e"), count: 2 }));
        assert_eq!((compared.others[0].value, &*compared.others[0].nodes), (Some("c6c7"), &["c"][..]));
        assert_eq!(comparison.differing, ["c"]);
        let nodes = with(&[Some("739e"), Some("c6c7")]);
        let comparison = nodes.compare();
        assert_eq!((comparison.agree, of(&comparison, property).others.len()), (false, 2));
        for equal in [
            &[Some("739e"), Some("739e")][..],
            &[Some("739e"), None],
            &[Some("739e"), Some("739e"), Some("")],
            &[Some(""), None],
        ] {
            let nodes = with(equal);
            assert!(nodes.compare().agree, "{property} {equal:?}");
        }
    }
}

#[test]
fn a_node_whose_ports_have_another_traffic_class_is_odd() {
    let node = |classes: &[Option<&str>]| {
        let mut report = brief(Some("1"), &[("mlx5_0", 1, "x"), ("mlx5_1", 1, "x")]);
        for (hca, class) in report.hcas.iter_mut().zip(classes) {
            hca.traffic_class = class.map(str::to_owned);
        }
        report
    };
    let [a, b] = ["Global tclass=236", "Global tclass=106"].map(Some);
    let mut nodes = ComparedNodes::default();
    for (host, classes) in [("a", [a, a]), ("b", [a, a]), ("c", [a, a]), ("d", [a, b]), ("e", [None, None])] {
        nodes.add(host, &node(&classes));
    }
    let comparison = nodes.compare();
    let compared = of(&comparison, "traffic-class");
    assert_eq!(compared.majority, Some(Majority { value: a, count: 3 }));
    let others: Vec<_> = compared.others.iter().map(|other| (other.value, &*other.nodes)).collect();
    let split = Some("Global tclass=236 on mlx5_0; Global tclass=106 on mlx5_1");
    assert_eq!(others, [(None, &["e"][..]), (split, &["d"][..])]);
    assert_eq!(comparison.differing, ["d", "e"]);
}

#[test]
fn half_of_the_nodes_are_a_majority_unless_the_other_half_agrees() {
    let mut nodes = ComparedNodes::default();
    for (host, nccl) in [("a", "1"), ("b", "1"), ("c", "2"), ("d", "3")] {
        nodes.add(host, &brief(Some(nccl), &[]));
    }
    let comparison = nodes.compare();
    assert_eq!(of(&comparison, "nccl").majority, Some(Majority { value: Some("1"), count: 2 }));
    assert_eq!(comparison.differing, ["c", "d"]);
    nodes.add("d", &brief(Some("2"), &[]));
    let comparison = nodes.compare();
    assert_eq!(of(&comparison, "nccl").majority, None);
    assert_eq!((comparison.agree, comparison.differing.len(), comparison.repeated), (false, 0, vec!["d"]));
}

/// Reports from an older version show all values.
#[test]
fn a_secret_of_a_report_is_not_shown() {
    let mut nodes = ComparedNodes::default();
    for host in ["a", "b"] {
        let mut report = brief(None, &[]);
        report.filled = [("T_TOKEN".to_owned(), format!("hunter-{host}"))].into();
        nodes.add(host, &report);
    }
    let shown = serde_json::to_string(&nodes.compare()).unwrap();
    assert!(shown.contains("T_TOKEN") && !shown.contains("hunter"), "{shown}");
}

#[test]
fn nodes_are_in_natural_order() {
    let mut nodes = ComparedNodes::default();
    for host in ["n10", "n9", "m1", "n1", "n01"] {
        nodes.add(host, &brief(if host == "m1" { None } else { Some("1") }, &[]));
    }
    assert_eq!(nodes.sorted(nodes.rows.keys().copied()), ["m1", "n01", "n1", "n9", "n10"]);
    assert_eq!(of(&nodes.compare(), "nccl").others[0].value, None);
}

#[test]
fn ports_of_an_hca_are_one_hca() {
    let mut nodes = ComparedNodes::default();
    nodes.add("a", &brief(None, &[("mlx5_0", 2, "x"), ("mlx5_0", 1, "x")]));
    nodes.add("b", &brief(None, &[("mlx5_0", 1, "x"), ("mlx5_0", 2, "y")]));
    let comparison = nodes.compare();
    assert_eq!(of(&comparison, "hca-count").majority.as_ref().unwrap().value, Some("1"));
    assert!(of(&comparison, "hcas").others.is_empty());
    let rates: Vec<_> = of(&comparison, "rate").others.iter().map(|other| other.value.unwrap()).collect();
    assert_eq!(rates, ["x", "x on mlx5_0; y on mlx5_0:2"]);
}
