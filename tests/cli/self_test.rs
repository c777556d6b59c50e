//! Tests `self-test` on captured hosts.

use std::fs;

use serde_json::Value;

use super::run::{Ran, rdma_init, run};
use crate::support::golden::facts as host;
use crate::support::skip;

fn self_test(arguments: &[&str]) -> Ran {
    run(rdma_init(["self-test"].iter().chain(arguments)))
}

/// Returns one check of a captured host: its outcome, its evidence, what is wrong, and the fix.
#[track_caller]
fn one_check(check: &str, facts: &str) -> [String; 4] {
    let ran = self_test(&["--facts", facts, "--json", "--only", check]).expect_code(0);
    let report: Value = serde_json::from_str(ran.text()).unwrap();
    let found = &report["checks"][0];
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    let evidence: Vec<&str> =
        found["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    [text("outcome"), evidence.join("; "), text("message"), text("fix")]
}

#[test]
fn a_sound_host_passes() {
    let ran = self_test(&["--facts", "demo:cce-roce"]).expect_code(0);
    for part in ["passed", "ok       port", "mlx5_1..mlx5_8: ACTIVE, LinkUp", "checks do not apply"] {
        assert!(ran.text().contains(part), "{part:?} is not in\n{}", ran.text());
    }
}

/// A row shows no evidence that contradicts its state, because most evidence describes what is right about
/// the other ports.
#[test]
fn a_row_does_not_contradict_its_state() {
    for (facts, row, evidence) in [
        (host("mixed-rates"), ["warning", "rate"], "see below"),
        (host("soft-roce-slots-above-255"), ["FAILED", "gid"], "see below"),
    ] {
        let ran = self_test(&["--facts", &facts]);
        let mut lines = ran.text().lines();
        let is_row = |line: &&str| {
            let mut words = line.split_whitespace();
            words.next() == Some(row[0]) && words.next() == Some(row[1])
        };
        let line = lines.find(is_row).unwrap_or_else(|| panic!("{row:?} is not in\n{}", ran.text()));
        let said = line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
        assert!(said.starts_with(evidence), "{line}");
    }
}

#[test]
fn what_fails_is_named_with_its_fix_and_told_by_the_code() {
    for (name, check, fix) in [
        ("image-without-libibverbs", "FAILED: libibverbs:", "Install libibverbs1"),
        ("image-without-provider", "FAILED: provider:", "ibverbs-providers"),
        ("soft-roce-slots-above-255", "FAILED: gid:", "Remove unneeded addresses"),
        ("no-rdma-at-all", "FAILED: fabric:", "no RDMA device"),
        ("rails-without-addresses", "FAILED: address: Only 6 rails are left for 8 GPUs.", "DHCP"),
        ("ib-limited-member", "FAILED: pkey:", "NCCL_IB_PKEY=1 (0x8005)"),
        ("user-comm-id-elsewhere", "FAILED: interface:", "NCCL_COMM_ID"),
    ] {
        let facts = host(name);
        let mut command = rdma_init(["self-test", "--facts", &facts]);
        if name == "user-comm-id-elsewhere" {
            command.env("NCCL_COMM_ID", "192.0.2.1:4000");
        }
        let ran = run(command).expect_code(1);
        assert!(ran.text().contains(check) && ran.text().contains(fix), "{name}: {}", ran.text());
    }
    // If the fabric is missing, the interface and its state are named.
    for (name, state) in [
        ("acs-type2-auto-hpn0-down", "the interface hpn0 is down"),
        ("acs-type2-auto-hpn0-without-carrier", "the interface hpn0 has no carrier (UP, but not RUNNING)"),
        ("acs-type2-auto-hpn0-without-address", "the interface hpn0 has no address"),
        ("acs-type2-auto-hpn0-link-local", "the interface hpn0 has no global address"),
    ] {
        let ran = self_test(&["--facts", &host(name)]).expect_code(1);
        for part in ["FAILED: fabric:", state, "alibabacloud.com/hpn-type"] {
            assert!(ran.text().contains(part), "{part:?} is not in\n{}", ran.text());
        }
    }
    // A port that the configuration excludes is not used, either.
    let facts = host("default-route-hca-is-the-only-one");
    let mut command = rdma_init(["self-test", "--facts", &facts]);
    command.env("RDMA_INIT_DEFAULT_ROUTE_HCA", "skip");
    let ran = run(command).expect_code(1);
    assert!(
        ran.text().contains("FAILED: fabric: default-route-hca = \"skip\" excludes mlx5_0:1, and no other RDMA device is usable"),
        "{}",
        ran.text()
    );
    self_test(&["--facts", &facts]).expect_code(0);
    // A warning is not a failure.
    let ran = self_test(&["--facts", &host("mixed-rates")]).expect_code(0);
    assert!(ran.text().contains("warning: rate:"), "{}", ran.text());
}

/// Some findings are only warnings, because the state may be intentional. They do not hide that the job would
/// get no RDMA.
#[test]
fn a_job_that_would_get_no_rdma_fails() {
    let tcp = "FAILED: fabric: The job has no RDMA: ";
    for (name, (variable, value), parts) in [
        ("hcas-not-allotted", ("NCCL_DEBUG", "WARN"), [tcp, "not allotted", "Request"]),
        (
            "ib-disabled-by-user-with-rdma-there",
            ("NCCL_IB_DISABLE", "1"),
            [tcp, "NCCL_IB_DISABLE=1 (environment) turns verbs off", "Remove"],
        ),
        (
            "user-disables-ib-in-conf-file",
            ("NCCL_DEBUG", "WARN"),
            [tcp, "/etc/nccl.conf", "Remove NCCL_IB_DISABLE"],
        ),
        (
            "user-forces-sockets",
            ("NCCL_NET", "Socket"),
            ["FAILED: nccl-decides: NCCL will not use the RDMA devices: NCCL_NET asks", "usable", "Remove"],
        ),
    ] {
        let facts = host(name);
        let mut command = rdma_init(["self-test", "--facts", &facts]);
        command.env(variable, value);
        let ran = run(command).expect_code(1);
        for part in parts {
            assert!(ran.text().contains(part), "{name}: {part:?} is not in\n{}", ran.text());
        }
    }
}

#[test]
fn values_that_do_not_mean_what_they_seem_to_are_told() {
    let facts = host("user-tuning-lists");
    let with = |value: &str| {
        let mut command = rdma_init(["self-test", "--facts", &facts, "--only", "variables"]);
        command.env("NCCL_PROTO", value);
        run(command)
    };
    assert!(with("^LL128").expect_code(0).text().contains("1 variable set by you"));
    let ran = with("Simpel").expect_code(1);
    assert!(ran.text().contains("FAILED: variables: NCCL_PROTO=Simpel (environment)"), "{}", ran.text());
}

/// A state that needs no repair does not cause a warning in every run.
#[test]
fn ports_and_routes_that_are_not_needed_pass() {
    for (name, check, says) in [
        ("dgx-spark-one-cable", "port", "The 2 ports in use are enough for 1 GPU"),
        ("dual-port-cards-one-cable", "port", "Another port of the same adapter is in use"),
        ("switchdev-representors", "port", "The 2 ports in use are enough for 2 GPUs"),
        ("rails-without-a-route", "route", "No route leads out"),
        ("rails-with-policy-routing", "route", ""),
    ] {
        let [outcome, _, message, _] = one_check(check, &host(name));
        assert_eq!(outcome, "passed", "{name}: {message}");
        assert!(message.contains(says) && says.is_empty() == message.is_empty(), "{name}: {message}");
    }
    for (name, check) in [
        ("ib-rail-polling", "port"),
        ("nearest-hca-is-down", "port"),
        ("ipv6-rails-without-a-route", "route"),
    ] {
        assert_eq!(one_check(check, &host(name))[0], "warning", "{name}");
    }
    for demo in rdma_init::demo::names() {
        let [_, _, message, _] = one_check("route", &format!("demo:{demo}"));
        assert!(!message.contains("No route"), "{demo}: {message}");
    }
}

#[test]
fn errors_that_links_have_counted_are_told() {
    let [outcome, evidence, message, fix] = one_check("counters", &host("link-counts-errors"));
    assert_eq!(outcome, "warning");
    assert_eq!(
        evidence,
        "mlx5_1, mlx5_4: no errors since the driver was loaded; mlx5_2: link_downed 3, symbol_error 12; \
         mlx5_3: out_of_sequence 4711, packet_seq_err 42"
    );
    assert!(message.ends_with("driver was loaded: mlx5_2: link_downed 3, symbol_error 12."), "{message}");
    assert!(fix.contains("cable"), "{fix}");
    assert_eq!(one_check("counters", &host("generic-roce"))[0], "skipped");
}

#[test]
fn each_gpu_has_its_nearest_hca() {
    let [outcome, evidence, message, _] = one_check("gpu-nic", &host("nearest-hca-is-down"));
    assert_eq!(outcome, "warning");
    assert_eq!(evidence, "GPU 0: mlx5_1 PIX; GPU 1: mlx5_2 PIX; GPU 2: mlx5_3 PIX; GPU 3: mlx5_3 NODE");
    let wanted = "GPU 3: mlx5_3 NODE, but mlx5_4 PIX (the port is DOWN, not ACTIVE).";
    assert!(message.ends_with(wanted), "{message}");
    let [outcome, _, message, _] = one_check("pci-link", &host("nearest-hca-is-down"));
    assert_eq!(outcome, "warning");
    assert!(message.ends_with("mlx5_1, mlx5_2: 32.0 GT/s PCIe x16; mlx5_3: 32.0 GT/s PCIe x8."), "{message}");
    assert_eq!(one_check("gpu-nic", &host("generic-roce"))[2], "the facts do not say where the GPUs are");
}

#[test]
fn the_state_folder_is_no_reason_to_fail() {
    let [outcome, _, message, fix] = one_check("state", &host("link-counts-errors"));
    assert_eq!(outcome, "warning");
    assert!(message.contains("/run/rdma-init") && fix.contains("emptyDir"), "{message} {fix}");
    assert_eq!(one_check("state", &host("generic-roce"))[0], "skipped");
}

#[test]
fn the_mtu_of_roce_follows_from_that_of_the_interfaces() {
    let [outcome, evidence, ..] = one_check("mtu", &host("generic-roce"));
    assert_eq!(outcome, "passed");
    assert_eq!(evidence, "mlx5_1..mlx5_4: 9000, which gives RoCE an MTU of 4096");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("facts.json");
    let text = fs::read_to_string(host("generic-roce")).unwrap();
    let with = |mtu: &str| {
        fs::write(&file, text.replacen("\"mtu\": 9000", &format!("\"mtu\": {mtu}"), 1)).unwrap();
        one_check("mtu", &file.display().to_string())
    };
    let [outcome, evidence, message, _] = with("1500");
    assert!(evidence.starts_with("mlx5_1: 1500, which gives RoCE an MTU of 1024; mlx5_2..mlx5_4: 9000"));
    assert!(outcome == "warning" && message.contains("different MTUs"), "{outcome}: {message}");
}

#[test]
fn releases_are_held_against_the_published_minimum() {
    let [outcome, evidence, message, _] = one_check("nccl", &host("erdma-old-nccl"));
    assert_eq!(outcome, "warning");
    assert!(
        evidence.ends_with("2.18.3, as the image says (NCCL_VERSION); profile erdma needs 2.19 or later")
    );
    assert!(message.contains("needs NCCL 2.19 or later, but the image has 2.18.3"), "{message}");
    let [outcome, evidence, message, _] = one_check("cuda", &host("erdma-old-nccl"));
    assert_eq!(outcome, "warning");
    assert_eq!(evidence, "11.8.0 (CUDA_VERSION); profile erdma needs 12.1 or later");
    assert!(message.contains("needs CUDA 12.1 or later, but the image has 11.8.0"), "{message}");
}

/// The counts that Alibaba Cloud publishes pass: the number of eRDMA NICs for each instance type, and the
/// number of GPUs for ACS.
#[test]
fn published_counts_pass_and_others_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("facts.json");
    let hosts = [(1, "erdma-1-nic"), (2, "pai-erdma-2-nics"), (4, "erdma-4-nics")];
    for (kind, published) in [
        ("ecs.ebmgn7v.32xlarge", 2),
        ("ecs.ebmgn8v.48xlarge", 2),
        ("ecs.ebmgn8is.32xlarge", 2),
        ("ecs.ebmgn8i.32xlarge", 4),
        ("ecs.gn8is.2xlarge", 1),
        ("ecs.gn8is.4xlarge", 1),
        ("ecs.gn8is-2x.8xlarge", 1),
        ("ecs.gn8is-4x.16xlarge", 1),
    ] {
        for (nics, name) in hosts {
            let mut facts: Value = serde_json::from_str(&fs::read_to_string(host(name)).unwrap()).unwrap();
            facts["dmi"]["product"] = kind.into();
            fs::write(&file, facts.to_string()).unwrap();
            let [outcome, evidence, message, _] = one_check("count", &file.display().to_string());
            assert!(evidence.ends_with(&format!("; {kind} (DMI)")), "{evidence}");
            match nics == published {
                true => assert_eq!((outcome.as_str(), message.as_str()), ("passed", ""), "{kind}"),
                false => assert!(
                    outcome == "warning" && message.contains(&format!("{kind} has {published} RDMA NIC")),
                    "{outcome}: {message}"
                ),
            }
        }
    }
    for (name, outcome) in [
        ("acs-type1-8-cards", "passed"),
        ("acs-type1-4-cards", "passed"),
        ("acs-type1-3-cards", "warning"),
        ("acs-type2-16-cards", "passed"),
        ("acs-type2-8-cards", "passed"),
        ("erdma-3-nics", "warning"),
    ] {
        assert_eq!(one_check("count", &host(name))[0], outcome, "{name}");
    }
    assert_eq!(one_check("count", &host("aws-efa"))[1], "8 GPUs; 4 RDMA NICs; p4d.24xlarge (DMI)");
}

#[test]
fn checks_can_be_listed_left_out_and_chosen() {
    let listed = self_test(&["--list"]).expect_code(0);
    assert!(listed.text().lines().any(|line| line.starts_with("memlock ")), "{}", listed.text());
    let facts = host("image-without-libibverbs");
    self_test(&["--facts", &facts, "--skip", "libibverbs", "--skip", "nccl-decides"]).expect_code(0);
    let only = self_test(&["--facts", &facts, "--only", "libibverbs"]).expect_code(1);
    assert!(only.text().contains("(1 check on"), "{}", only.text());
    self_test(&["--only", "nosuch"]).expect_error(&["nosuch", "--list"]);
}

#[test]
fn json_is_a_document_on_one_line() {
    let ran = self_test(&["--facts", &host("image-without-libibverbs"), "--json"]).expect_code(1);
    assert_eq!(ran.text().lines().count(), 1);
    let report: Value = serde_json::from_str(ran.text()).unwrap();
    assert_eq!((&report["schema"], &report["passed"]), (&"rdma-init/self-test/1".into(), &false.into()));
    let checks = report["checks"].as_array().unwrap();
    let failed: Vec<&Value> = checks.iter().filter(|check| check["outcome"] == "failed").collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert_eq!(failed[0]["id"], "libibverbs");
    assert_eq!(report["hcas"].as_array().unwrap().len(), 2);
}

#[test]
fn this_machine_can_be_tested() {
    let known = self_test(&["--level", "quick", "--only", "state", "--json"]).expect_code(0);
    assert!(!known.text().contains("not known"), "{}", known.text());
    let ran = self_test(&["--only", "shared-memory-writable", "--only", "nofile"]).expect_code(0);
    assert!(ran.text().contains("this user may write to it"), "{}", ran.text());
}

/// Most machines have no fabric. There, the job does not start if the self-test is required.
#[test]
fn at_start_up_a_failure_is_said_or_keeps_the_command_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let start = |flags: &[&str]| {
        let mut command = rdma_init(flags.iter().chain(&["--", "echo", "started"]));
        command.env("RDMA_INIT_TERMINATION_LOG", &log);
        run(command)
    };
    if start(&["--require-rdma"]).code == Some(0) {
        return skip("this machine has RDMA devices, so the self-test may pass");
    }
    fs::remove_file(&log).unwrap();
    let warned = start(&["--self-test", "warn"]).expect_code(0);
    assert_eq!(warned.text(), "started\n");
    for part in ["rdma-init: self-test failed (", "FAILED fabric", "FAILED: fabric: The job has no RDMA"] {
        assert!(warned.stderr.contains(part), "{part:?} is not in\n{}", warned.stderr);
    }
    assert!(!log.exists());

    let refused = start(&["--self-test", "enforce", "--refuse-exit-code", "77"]).expect_code(77);
    assert_eq!(refused.text(), "");
    assert!(
        refused.stderr.contains("refusing to start the command (exit code 77): self-test"),
        "{refused:#?}"
    );
    let reason = fs::read_to_string(&log).unwrap();
    let wanted = "rdma-init: self-test = \"enforce\", and 1 check failed. fabric: The job has no RDMA";
    assert!(reason.starts_with(wanted) && reason.lines().count() == 1, "{reason:?}");

    // If only errors are shown, a warning is silent but a failure is not.
    let quiet = start(&["--self-test", "warn", "--log-level", "error"]).expect_code(0);
    assert!(quiet.stderr.contains("FAILED fabric") && !quiet.stderr.contains("warning"), "{quiet:#?}");
    let json = start(&["--self-test", "warn", "--log-format", "json"]).expect_code(0);
    let events: Vec<Value> = json.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed = events.iter().find(|event| event["event"] == "check" && event["level"] == "ERROR").unwrap();
    assert_eq!(failed["id"], "fabric");
    let whole = events.iter().find(|event| event["event"] == "self-test").unwrap();
    assert!(whole["passed"] == false && whole["took_us"].is_u64(), "{whole}");
}

#[test]
fn hcas_for_storage_are_left_alone_and_each_gpu_has_its_rail() {
    let facts = host("storage-hcas-on-roce");
    let [outcome, evidence, ..] = one_check("unused", &facts);
    assert_eq!(
        (outcome.as_str(), evidence.as_str()),
        (
            "passed",
            "mlx5_8..mlx5_11 skipped: no GPU is near (NODE at best), and every GPU has a nearer HCA (PIX or PXB)"
        )
    );
    let [outcome, evidence, ..] = one_check("gpu-nic", &facts);
    assert_eq!(outcome, "passed");
    assert!(evidence.starts_with("GPU 0: mlx5_0 PIX; GPU 1: mlx5_1 PIX"), "{evidence}");
}
