//! Tests `plan --why VARIABLE`.

use serde_json::Value;

use super::run::{rdma_init, run};
use crate::support::golden;

/// Returns the explanation of a variable on this host, with these variables in the environment.
fn why(host: &str, variable: &str, environment: &[(&str, &str)]) -> String {
    let mut command = rdma_init(["plan", "--facts", host, "--why", variable]);
    command.envs(environment.iter().copied());
    run(command).expect_code(0).text().to_owned()
}

fn expect(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_value_of_the_user_has_what_it_does_and_what_would_be_without_it() {
    let text = why("demo:cce-roce", "NCCL_IB_GID_INDEX", &[("NCCL_IB_GID_INDEX", "2")]);
    expect(
        &text,
        &[
            "NCCL_IB_GID_INDEX=2, set by you and unchanged",
            "environment: \"2\"",
            "NCCL 2.21.5 will use mlx5_1..mlx5_8, RoCE v1, GID index 2",
            "without it, NCCL 2.21.5 would use mlx5_1..mlx5_8, RoCE v2, GID index 3",
            "warning: NCCL_IB_GID_INDEX=2 (environment) is wrong here",
            "\n      fix: ",
        ],
    );
}

#[test]
fn the_rules_that_were_tried_come_in_order() {
    let host = golden::facts("erdma-different-indexes-needs-range");
    let text = why(&host, "NCCL_IB_GID_INDEX", &[]);
    let rules = [
        "1. the published 1, if it is right on every HCA: it is not",
        "2. leave it unset, so that NCCL finds the index by itself: the image has NCCL 2.23.4; only NCCL 2.26 and later are sure to find it after a change",
        "3. the lowest GID index that is right on every HCA: there is none",
        "4. leave it unset: the search of NCCL 2.23.4 without a range: it finds index 1 of erdma_0:1, which is wrong",
        "5. leave it unset: the search of NCCL 2.23.4 with the range 172.20.0.0/16: it finds a right index on every HCA",
    ];
    expect(&text, &rules);
    let interface = why(&host, "NCCL_SOCKET_IFNAME", &[]);
    expect(&interface, &["the route to MASTER_ADDR: there is none", "the default route: eth0"]);
}

#[test]
fn a_port_that_the_env_plugin_adds_is_named() {
    let text = why(&golden::facts("ib-rail-polling-env-plugin"), "NCCL_IB_HCA", &[]);
    let own = "=mlx5_0,mlx5_1,mlx5_3, which rdma-init decided for this node; also mlx5_2 if its port is ACTIVE by then";
    expect(&text, &[own]);
    // NCCL reads some variables before it loads a plugin.
    let text = why(&golden::facts("ib-rail-polling-env-plugin"), "NCCL_DEBUG", &[]);
    expect(
        &text,
        &["does not ask rdma-init's env plugin, because NCCL reads this variable before it loads a plugin"],
    );
    // Without the plugin, the start's list applies.
    let text = why(&golden::facts("ib-rail-polling"), "NCCL_IB_HCA", &[]);
    assert!(!text.contains("by then"), "{text}");
}

#[test]
fn a_slot_that_is_right_and_not_taken_is_named_with_the_reason() {
    let why = |host: &str| why(&golden::facts(host), "NCCL_IB_GID_INDEX", &[]);
    let vlan = "index 5, which is right also on every HCA (172.20.1.9 on eth1.100, 172.20.2.9 on eth2.100): \
                not used, because index 3 is lower; set NCCL_IB_GID_INDEX=5 to take it";
    expect(&why("vlan-beside-untagged"), &["NCCL_IB_GID_INDEX=3", vlan]);
    expect(
        &why("vlan-on-one-rail"),
        &[
            "index 5, which is right also on every HCA (2001:db8:1::9 on eth1, 2001:db8:2::9 on eth2): \
             not used, because IPv4 comes before IPv6",
            "index 7, which is right on 1 of 2 HCAs (172.20.1.9 on eth1.100): not used, because one index applies to all HCAs",
        ],
    );
    expect(
        &why("vlan-beside-the-published-slot"),
        &[
            "the published 1, if it is right on every HCA: it is",
            "index 3, which is right also on every HCA (172.20.0.17 on eth0.100): not used, because index 1 is published",
        ],
    );
    expect(
        &why("vlan-and-slots-that-differ"),
        &[
            "NCCL_IB_GID_INDEX stays unset",
            "index 5 of mlx5_1:1, which is also right (172.20.1.9 on eth1.100): \
             not used, because the search finds index 3 (172.16.1.9 on eth1)",
            "index 9 of mlx5_2:1, which is also right (172.20.1.10 on eth2.100)",
        ],
    );
    // If only one GID index is right, there is nothing to explain.
    let text = why("generic-roce");
    assert!(!text.contains("also right"), "{text}");
}

#[test]
fn hcas_that_are_left_out_or_kept_against_the_rule_are_named() {
    let why = |host: &str| why(&golden::facts(host), "NCCL_IB_HCA", &[]);
    expect(
        &why("storage-hcas-on-infiniband"),
        &[
            "1. only the HCAs that are near a GPU (PIX or PXB), as every GPU has one: skips mlx5_8:1, mlx5_9:1",
            "GPU 7: mlx5_7 PIX",
        ],
    );
    expect(
        &why("default-route-on-one-of-two-rails"),
        &[
            "1. without the HCAs that carry a default route, unless they are rails: keeps mlx5_0:1",
            "note: mlx5_0:1 (eth0) carries the default route, and NCCL_IB_HCA still uses it as a rail",
        ],
    );
    expect(&why("more-hcas-than-gpus"), &["note: NCCL_IB_HCA takes 10 HCAs for 8 GPUs"]);
}

#[test]
fn what_a_profile_publishes_for_some_hosts_is_told_with_its_condition() {
    let of_own = |profile: &str, variable: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("site.toml"), profile).unwrap();
        let folder = ["--profile-dir", folder.path().to_str().unwrap()];
        let arguments = ["plan", "--facts", "demo:cce-roce", "--profile", "site", "--why", variable];
        run(rdma_init(folder.into_iter().chain(arguments))).expect_code(0).text().to_owned()
    };
    let profile = "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n\
        [from-environment]\nNCCL_IB_TC = \"SITE_TC\"\n\
        [[only]]\nif = { link-layer = \"Ethernet\" }\nnccl-min = \"2.20\"\nvariables = { SITE_TUNING = \"a\" }\n\
        [[only]]\nnccl-min = \"2.99\"\nvariables = { SITE_TUNING = \"b\" }\n";
    expect(
        &of_own(profile, "SITE_TUNING"),
        &[
            "SITE_TUNING=a, filled in by rdma-init",
            "profile site publishes a only if link-layer = \"Ethernet\" and nccl-min = \"2.20\", which holds here",
            "profile site publishes b only if nccl-min = \"2.99\", which does not hold here",
        ],
    );
    let source = "profile site gives it the value of the platform's variable SITE_TC, if that is set";
    expect(&of_own(profile, "NCCL_IB_TC"), &[source]);
}

#[test]
fn why_says_if_a_variable_is_unknown_or_unset() {
    let text = why("demo:cce-roce", "NCCL_IB_HCAS", &[("NCCL_IB_HCAS", "mlx5_1")]);
    expect(
        &text,
        &["no NCCL up to 2.32 reads it; NCCL_IB_HCA has a similar name", "did you mean NCCL_IB_HCA?"],
    );
    let unset = why("demo:cce-roce", "NCCL_IB_TC", &[]);
    expect(
        &unset,
        &["NCCL_IB_TC stays unset: nothing requests it", "profile generic-roce says nothing about it"],
    );
    expect(
        &why("demo:erdma", "NCCL_IB_TC", &[]),
        &["NCCL_IB_TC stays unset", "profile erdma says to leave it unset"],
    );
    let of_others = why("demo:cce-roce", "MASTER_ADDR", &[("MASTER_ADDR", "10.0.0.1")]);
    expect(&of_others, &["MASTER_ADDR is not a variable of NCCL", "rdma-init does not set it"]);
    assert!(!of_others.contains("findings"), "{of_others}");
    let unknown = why(&golden::facts("master-addr-unknown-yet"), "MASTER_ADDR", &[]);
    expect(
        &unknown,
        &[
            "rdma-init does not set it",
            "findings\n  note: This node cannot resolve MASTER_ADDR=job-master-0 yet",
        ],
    );
    let gloo = why("demo:cce-roce", "GLOO_SOCKET_IFNAME", &[("GLOO_SOCKET_IFNAME", "eth9")]);
    expect(&gloo, &["GLOO_SOCKET_IFNAME=eth9, set by you and unchanged"]);
    for (name, meant) in [("ib_hca", "NCCL_IB_HCA"), ("ucx_net_devices", "UCX_NET_DEVICES")] {
        expect(
            &why("demo:cce-roce", name, &[]),
            &[&format!("rdma-init does not set it; did you mean {meant}?")],
        );
    }
    for name in ["", "\u{1b}[31m", "A=B", "A B"] {
        run(rdma_init(["plan", "--facts", "demo:cce-roce", "--why", name]))
            .expect_error(&["not the name of a variable"]);
    }
}

#[test]
fn the_chain_is_also_json() {
    let command = rdma_init(["plan", "--facts", "demo:cce-roce", "--why", "NCCL_IB_HCA", "--json"]);
    let document: Value = serde_json::from_str(run(command).expect_code(0).text()).unwrap();
    assert_eq!(document["schema"], "rdma-init/why/1");
    assert_eq!(document["setting"]["source"], "facts");
    assert_eq!(document["forecasts"][0]["transport"]["verbs"].as_array().unwrap().len(), 8);
    assert_eq!(document["without"][0]["transport"]["verbs"].as_array().unwrap().len(), 9);
}

#[test]
fn the_evidence_of_all_and_the_chain_of_one_do_not_go_together() {
    run(rdma_init(["plan", "--evidence", "--why", "NCCL_IB_HCA"])).expect_error(&["--evidence", "--why"]);
}

#[test]
fn on_a_host_with_rccl_every_reason_names_rccl() {
    let host = golden::facts("rccl-slots-differ");
    let plan = run(rdma_init(["plan", "--json", "--facts", &host])).expect_code(0);
    let plan: Value = serde_json::from_str(plan.text()).unwrap();
    let of = |variable: &str| {
        let mut settings = plan["settings"].as_array().unwrap().iter();
        let setting = settings.find(|setting| setting["variable"] == variable).unwrap();
        setting["rule"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        of("NCCL_IB_ADDR_RANGE"),
        "makes RCCL's own search find the GID of this container on every HCA"
    );
    let text = why(&host, "NCCL_IB_ADDR_RANGE", &[]);
    expect(&text, &["RCCL 2.27.7 will use"]);
    let text = why(&host, "NCCL_IB_GID_INDEX", &[]);
    expect(&text, &["leave it unset: the search of RCCL 2.27.7"]);
}
