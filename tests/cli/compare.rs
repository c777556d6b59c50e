//! Tests `compare`, which finds the odd nodes out among the reports of many nodes.

use std::fs;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::run::{Ran, rdma_init, run, run_with_input};

/// Returns a report in the format of `self-test --json`.
pub(super) fn report(host: &str) -> Value {
    let hca = |number: usize| {
        json!({"hca": format!("mlx5_{number}"), "port": 1, "driver": "mlx5_core", "firmware": "28.39.1002",
               "link_layer": "Ethernet", "rate": "200 Gb/sec (4X HDR)", "gid_type": "RoCE v2",
               "gid_index": 3, "mtu": 4200})
    };
    json!({
        "schema": "rdma-init/self-test/1", "program": "0.1.0", "host": host, "passed": true, "took_us": 5,
        "hcas": (0..8).map(hca).collect::<Vec<_>>(), "nccl": "2.21.5", "profile": "generic-roce",
        "filled": {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "=mlx5_0,mlx5_1"},
        "checks": [{"id": "memlock", "title": "pinned memory", "outcome": "passed", "took_us": 3}],
    })
}

/// Returns the reports of four nodes. The change makes the last one differ.
fn with_odd_one(change: impl FnOnce(&mut Value)) -> String {
    let mut reports: Vec<Value> = (1..=4).map(|number| report(&format!("node{number:03}"))).collect();
    change(&mut reports[3]);
    lines(&reports)
}

fn lines_of(count: usize, report: &Value) -> String {
    lines(&vec![report.clone(); count])
}

pub(super) fn lines(reports: &[Value]) -> String {
    reports.iter().map(|report| format!("{report}\n")).collect()
}

/// Returns the report with its keys in the order in which a self-test writes them.
pub(super) fn in_order(mut report: Value) -> IndexMap<&'static str, Value> {
    let keys =
        ["schema", "program", "host", "passed", "took_us", "hcas", "nccl", "profile", "filled", "checks"];
    keys.into_iter().map(|key| (key, report[key].take())).collect()
}

pub(super) fn compare(input: impl Into<Vec<u8>>) -> Ran {
    run_with_input(rdma_init(["compare", "-"]), input)
}

pub(super) fn compare_json(input: impl Into<Vec<u8>>) -> (Option<i32>, Value) {
    let ran = run_with_input(rdma_init(["compare", "--json", "-"]), input);
    let document = serde_json::from_str(ran.text()).unwrap_or_else(|error| panic!("{error}: {ran:#?}"));
    (ran.code, document)
}

/// Returns the lines about a difference.
pub(super) fn differing(ran: &Ran) -> Vec<&str> {
    let lines = ran.text().lines().skip(1);
    lines.filter(|line| !line.starts_with("  same ")).map(str::trim).collect()
}

#[test]
fn nodes_that_agree_end_with_0() {
    let ran = compare(with_odd_one(|_| {})).expect_code(0);
    assert!(ran.text().contains(": 4 nodes: all agree, no check failed\n"), "{ran:#?}");
    assert!(ran.text().contains("  same    rate               200 Gb/sec (4X HDR) (4 nodes)\n"), "{ran:#?}");
    assert!(differing(&ran).is_empty() && ran.stderr.is_empty(), "{ran:#?}");
    let ran = compare(lines(&[report("alone")])).expect_code(0);
    assert!(
        ran.text().contains(": 1 node: there is no other to compare it with, no check failed\n"),
        "{ran:#?}"
    );
}

#[test]
fn the_odd_one_is_named_for_each_property() {
    let each = |field: &str, value: Value| {
        let field = field.to_owned();
        move |report: &mut Value| {
            for hca in report["hcas"].as_array_mut().unwrap() {
                hca[&field] = value.clone();
            }
        }
    };
    let ran = |change: &dyn Fn(&mut Value)| compare(with_odd_one(change)).expect_code(1);
    let cases: [(&str, Value, &str, &str); 8] = [
        ("link_layer", json!("InfiniBand"), "link-layer", "InfiniBand (1 node: node004)"),
        ("rate", json!("100 Gb/sec (2X HDR)"), "rate", "100 Gb/sec (2X HDR) (1 node: node004)"),
        ("gid_type", Value::Null, "gid-type", "none (1 node: node004)"),
        ("gid_index", json!(5), "gid-index", "5 (1 node: node004)"),
        ("mtu", json!(1500), "mtu", "1500 (1 node: node004)"),
        ("traffic_class", json!("Global tclass=106"), "traffic-class", "Global tclass=106 (1 node: node004)"),
        ("driver", json!("mlx5"), "driver", "mlx5 (1 node: node004)"),
        ("firmware", json!("28.36"), "firmware", "28.36 (1 node: node004)"),
    ];
    for (field, value, property, odd) in cases {
        let ran = ran(&each(field, value));
        let lines = differing(&ran);
        assert!(lines.len() == 2 && lines[0].starts_with(&format!("differ  {property} ")), "{ran:#?}");
        assert_eq!(lines[1], odd, "{ran:#?}");
        assert!(ran.text().contains(": 4 nodes: 1 differs from the majority, no check failed\n"), "{ran:#?}");
    }
    let top = |field: &'static str, value: Value, odd: &str| {
        let ran = ran(&|report: &mut Value| report[field] = value.clone());
        assert_eq!(differing(&ran)[1], odd, "{ran:#?}");
    };
    top("nccl", json!("2.27.3"), "2.27.3 (1 node: node004)");
    top("nccl", Value::Null, "none (1 node: node004)");
    top("profile", json!("baidu-cce"), "baidu-cce (1 node: node004)");
}

/// Not every node has a resource claim that reports these.
#[test]
fn nodes_of_several_placement_groups_or_nvlink_domains_are_told() {
    for (field, property) in [("placement_group", "placement-group"), ("nvlink_domain", "nvlink-domain")] {
        let with = |values: [Option<&str>; 4]| {
            let reports = values.iter().enumerate().map(|(number, value)| {
                let mut report = report(&format!("node{number:03}"));
                value.iter().for_each(|value| report[field] = json!(value));
                report
            });
            compare(lines(&reports.collect::<Vec<_>>()))
        };
        let [a, b] = [Some("c6c7"), Some("739e")];
        let ran = with([a, a, b, None]).expect_code(1);
        let told = differing(&ran);
        assert!(told[0].starts_with(&format!("differ  {property} ")), "{ran:#?}");
        let mut wanted = vec!["739e (1 node: node002)"];
        wanted.extend((field == "placement_group").then_some(
            "nodes of different placement groups share no InfiniBand, so start all nodes of the job in one placement group or scale set",
        ));
        assert_eq!(told[1..], wanted, "{ran:#?}");
        let ran = with([a, b, None, None]).expect_code(1);
        assert!(ran.text().contains(property) && ran.text().contains("node001"), "{ran:#?}");
        // The metadata of a node without a group has an empty text.
        for values in [[a; 4], [a, None, None, None], [a, a, a, Some("")]] {
            assert!(differing(&with(values).expect_code(0)).is_empty(), "{values:?}");
        }
        assert!(!with([None; 4]).expect_code(0).text().contains(property));
    }
}

/// If one of several HCAs differs, the line says which one.
#[test]
fn an_hca_that_differs_from_the_others_of_its_node_is_named() {
    let ran = compare(with_odd_one(|report| report["hcas"][7]["rate"] = json!("100 Gb/sec"))).expect_code(1);
    let odd = "200 Gb/sec (4X HDR) on mlx5_0..mlx5_6; 100 Gb/sec on mlx5_7 (1 node: node004)";
    assert!(differing(&ran).contains(&odd), "{ran:#?}");
}

#[test]
fn a_node_that_lacks_an_hca_differs_in_that_alone() {
    let ran = compare(with_odd_one(|report| {
        report["hcas"].as_array_mut().unwrap().pop();
    }));
    let ran = ran.expect_code(1);
    let lines = differing(&ran);
    assert_eq!((lines.len(), lines[1]), (4, "7 (1 node: node004)"), "{ran:#?}");
    assert_eq!(lines[3], "mlx5_0..mlx5_6 (1 node: node004)", "{ran:#?}");
    let ran = compare(with_odd_one(|report| report["hcas"] = json!([]))).expect_code(1);
    assert_eq!(differing(&ran).len(), 4, "{ran:#?}");
}

/// The order in which a node lists its HCAs, its variables or its keys does not matter.
#[test]
fn another_order_is_no_difference() {
    compare(with_odd_one(|report| report["hcas"].as_array_mut().unwrap().reverse())).expect_code(0);
}

#[test]
fn each_variable_is_compared() {
    let ran = compare(with_odd_one(|report| {
        report["filled"] = json!({"NCCL_IB_GID_INDEX": "", "NCCL_IB_TC": "106"});
    }));
    let ran = ran.expect_code(1);
    let lines = differing(&ran);
    let wanted = ["empty (1 node: node004)", "not set (1 node: node004)", "106 (1 node: node004)"];
    assert!(wanted.iter().all(|line| lines.contains(line)), "{ran:#?}");
    assert!(ran.text().contains("NCCL_IB_TC         not set (3 nodes)"), "{ran:#?}");
}

/// NCCL gets a value whether rdma-init has filled it in or the user has set it.
#[test]
fn a_value_of_the_user_is_compared_with_filled_in_ones() {
    let with_own = |value: &str| {
        compare(with_odd_one(|report| {
            report["filled"].as_object_mut().unwrap().remove("NCCL_IB_GID_INDEX");
            report["set"] = json!({"NCCL_IB_GID_INDEX": value, "NCCL_DEBUG": "INFO"});
        }))
    };
    let ran = with_own("5").expect_code(1);
    assert!(differing(&ran).contains(&"5 (1 node: node004)"), "{ran:#?}");
    let same = with_own("3").expect_code(0);
    assert!(!same.text().contains("not set") && !same.text().contains("NCCL_DEBUG"), "{same:#?}");
}

#[test]
fn checks_that_failed_are_named_with_their_nodes() {
    let failed = |report: &mut Value| {
        report["passed"] = json!(false);
        report["checks"][0]["outcome"] = json!("failed");
    };
    let ran = compare(with_odd_one(failed)).expect_code(1);
    assert!(ran.text().contains("all agree, 1 check failed\n"), "{ran:#?}");
    assert_eq!(differing(&ran), ["failed  memlock            1 node: node004"]);
    // A report that claims a failed check without naming one is not trusted, either.
    let ran = compare(with_odd_one(|report| report["passed"] = json!(false))).expect_code(1);
    assert_eq!(differing(&ran), ["failed  unnamed            1 node: node004"]);
}

#[test]
fn all_values_are_shown_if_none_has_a_majority() {
    let mut reports: Vec<Value> = (1..=5).map(|number| report(&format!("node{number:03}"))).collect();
    for (report, nccl) in reports.iter_mut().zip(["2.21.5", "2.22.3", "2.22.3", "2.23.4", "2.24.3"]) {
        report["nccl"] = json!(nccl);
    }
    let ran = compare(lines(&reports)).expect_code(1);
    assert!(ran.text().contains(": 5 nodes: no majority in 1 property, no check failed\n"), "{ran:#?}");
    let lines_of = differing(&ran);
    assert_eq!(lines_of[0], "differ  nccl               no value has a majority");
    assert_eq!(lines_of[1..3], ["2.22.3 (2 nodes: node002, node003)", "2.21.5 (1 node: node001)"]);
    // If only two nodes differ, neither is the odd one.
    let ran = compare(lines(&reports[..2])).expect_code(1);
    assert!(ran.text().contains("no value has a majority"), "{ran:#?}");
}

#[test]
fn of_several_reports_of_a_node_the_last_counts() {
    let mut old = report("node001");
    old["nccl"] = json!("2.18.1");
    let ran = compare(lines(&[old, report("node001"), report("node002")])).expect_code(1);
    assert!(ran.text().contains(": 2 nodes: 1 with reports that differ, no check failed\n"), "{ran:#?}");
    let why = "(tested again, or several nodes with one name; compare uses the last report of each)";
    assert_eq!(differing(&ran), [format!("twice   1 node: node001, with reports that differ {why}")]);
    // The same report twice does no harm.
    let ran = compare(lines_of(3, &report("node001"))).expect_code(0);
    assert!(
        ran.text().contains(": 1 node: there is no other to compare it with, no check failed\n"),
        "{ran:#?}"
    );
    assert_eq!(differing(&ran), [format!("twice   1 node: node001 {why}")]);
    // Several nodes with one name count as one, which is too few if a number was requested.
    let ran = run_with_input(rdma_init(["compare", "--expect=3", "-"]), lines_of(3, &report("localhost")));
    let ran = ran.expect_code(1);
    let missing = "missing 2 nodes: 3 are expected, and there are reports of 1 node; nodes with the same name count as one";
    assert!(differing(&ran).contains(&missing), "{ran:#?}");
}

#[test]
fn fewer_nodes_than_expected_are_a_failure() {
    let reports: Vec<Value> = (1..=3).map(|number| report(&format!("node{number:03}"))).collect();
    let expect = |nodes: &str, more: &[&str]| {
        let arguments = ["compare", "--expect", nodes, "-"].into_iter().chain(more.iter().copied());
        run_with_input(rdma_init(arguments), lines(&reports))
    };
    let ran = expect("3", &[]).expect_code(0);
    assert!(ran.text().contains(": 3 nodes: all agree, no check failed\n"), "{ran:#?}");
    let ran = expect("4", &[]).expect_code(1);
    assert!(ran.text().contains(": 3 of 4 nodes: all agree, no check failed\n"), "{ran:#?}");
    assert_eq!(differing(&ran), ["missing 1 node: 4 are expected, and there are reports of 3 nodes"]);
    let ran = expect("2", &[]).expect_code(0);
    assert!(ran.text().contains(": 3 nodes (2 expected): all agree"), "{ran:#?}");
    for (nodes, code, missing) in [("3", 0, 0), ("8", 1, 5)] {
        let ran = expect(nodes, &["--json"]).expect_code(code);
        let document: Value = serde_json::from_str(ran.text()).unwrap();
        assert_eq!((&document["passed"], &document["missing"]), (&json!(code == 0), &json!(missing)));
        assert_eq!(document["expected"].to_string(), nodes);
    }
    expect("0", &[]).expect_error(&["--expect"]);
    expect("all", &[]).expect_error(&["--expect"]);
}

/// A node that writes no report may be the very one that is down.
#[test]
fn a_file_without_a_report_is_named_and_the_others_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let whole = [1, 2].map(|number| {
        let name = format!("node{number}");
        write(&format!("{name}.json"), &lines(&[report(&name)]))
    });
    let empty = write("empty.json", "");
    let died = write("node5.log", "srun: error: node5: task 4: Exited with exit code 125\n");
    let other = write("other.log", "rdma-init: a log\n{}\n");
    let files = whole.iter().chain([&empty, &died, &other]);
    let ran = run(rdma_init(["compare"].into_iter().chain(files.map(String::as_str)))).expect_code(1);
    assert!(
        ran.text().contains(": 2 nodes: all agree, no check failed, 3 reports cannot be read\n"),
        "{ran:#?}"
    );
    let srun = "srun says \"node5: task 4: Exited with exit code 125\", so a report may be missing";
    assert_eq!(
        differing(&ran),
        [
            format!("unread  {empty}: it is empty"),
            format!("unread  {died}, line 1: {srun}"),
            format!("unread  {other}: there is no report in it"),
        ]
    );
    let ran = run(rdma_init(["compare", "--json", &whole[0], &empty])).expect_code(1);
    let document: Value = serde_json::from_str(ran.text()).unwrap();
    assert_eq!((&document["passed"], &document["nodes"]), (&json!(false), &json!(1)));
    assert_eq!(document["unread"], json!({"count": 1, "first": [{"file": empty, "why": "it is empty"}]}));
    // The launcher's lines also count between reports; a node whose check failed has written its report.
    let ended = |code| {
        format!(
            "{}srun: error: n[2-3]: tasks 1-2: Exited with exit code {code}\n",
            lines(&[report("n1"), report("n2")])
        )
    };
    assert!(compare(ended(137)).expect_code(1).text().contains("line 3: srun says \"n[2-3]: tasks 1-2"));
    compare(ended(1)).expect_code(0);
}

#[test]
fn many_names_are_condensed_and_bounded() {
    let mut reports: Vec<Value> = (1..=200).map(|number| report(&format!("node{number:03}"))).collect();
    for (index, report) in reports.iter_mut().enumerate() {
        if (10..42).contains(&index) {
            report["nccl"] = json!("2.18.1");
        }
        if index % 3 == 0 {
            report["profile"] = json!("none");
        }
    }
    let ran = compare(lines(&reports)).expect_code(1);
    assert!(ran.text().contains("2.18.1 (32 nodes: node011..node042)\n"), "{ran:#?}");
    assert!(ran.text().contains("none (67 nodes: node001, node004, "), "{ran:#?}");
    assert!(ran.text().contains(" and 51 more)\n"), "{ran:#?}");
}

#[test]
fn control_characters_reach_no_terminal() {
    let mut evil = report("node\u{1b}[2J\n  failed");
    evil["nccl"] = json!("\u{9b}31m");
    evil["checks"] = json!([{"id": "\u{7f}x\u{1b}", "outcome": "failed"}]);
    evil["filled"] = json!({"A\nB": "\r"});
    let input = format!("{evil}\n{}\n{{\"schema\":\"rdma-init/self-test/\u{1b}9\"}}\n", report("n"));
    for arguments in [&["compare", "-"][..], &["compare", "--json", "-"]] {
        let ran = run_with_input(rdma_init(arguments), input.clone()).expect_code(1);
        let bad = ran.text().chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(bad, None, "{ran:#?}");
        assert!(!ran.text().lines().any(|line| line.starts_with("  failed[")), "{ran:#?}");
    }
}

#[test]
fn json_says_the_same() {
    let (code, document) = compare_json(with_odd_one(|_| {}));
    assert_eq!((code, &document["agree"], &document["nodes"]), (Some(0), &json!(true), &json!(4)));
    assert_eq!((&document["passed"], &document["missing"]), (&json!(true), &json!(0)));
    assert_eq!(document.get("expected"), None);
    let (code, document) = compare_json(
        with_odd_one(|report| report["nccl"] = Value::Null) + "{\"schema\":\"rdma-init/self-test/1\"\n",
    );
    assert_eq!(code, Some(1));
    assert_eq!(document["schema"], "rdma-init/compare/1");
    assert_eq!(document["differing"], json!(["node004"]));
    let properties = document["properties"].as_array().unwrap();
    let nccl = properties.iter().find(|property| property["property"] == "nccl").unwrap();
    assert_eq!(nccl["majority"], json!({"value": "2.21.5", "count": 3}));
    assert_eq!(nccl["others"], json!([{"value": null, "count": 1, "nodes": ["node004"]}]));
    let filled = properties.iter().find(|property| property["variable"] == "NCCL_IB_GID_INDEX").unwrap();
    assert_eq!(filled["property"], "filled");
    assert_eq!(document["unread"]["count"], 1);
    assert_eq!(document["unread"]["first"][0]["line"], 5);
}

#[test]
fn reading_and_comparing_stop_at_their_limits() {
    // Each of these starts promises a report that continues to the end of the line.
    let line = "{\"schema\":\"rdma-init/self-test/1\",\"x\":[".repeat(20_000);
    let ran = compare(format!("{line}\n{}\n", report("node001"))).expect_code(1);
    assert!(ran.text().contains(": 1 node: there is no other to compare it with"), "{ran:#?}");
    assert!(ran.text().contains(", 51 reports cannot be read"), "{ran:#?}");
    let reports: Vec<Value> = (0..300)
        .map(|node| {
            let mut report = report(&format!("node{node:03}"));
            for number in 0..10 {
                report["filled"][format!("NCCL_OF_{node}_{number}")] = json!("1");
            }
            report
        })
        .collect();
    let ran = compare(lines(&reports)).expect_code(1);
    assert!(ran.text().contains("left    2502 more variables are not compared"), "{ran:#?}");
}
