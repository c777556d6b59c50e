//! Tests which values are filled in for a container's devices, and which values the user decides.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::docker::host::{Host, OWN_SLOT};
use crate::support::docker::{Ended, engine, file};

#[test]
fn a_container_gets_what_its_devices_call_for() {
    let Some(engine) = engine() else { return };
    let (front, rails) = (engine.network(), engine.rails());
    let (address, own) = (front.address(), [rails[0].address(), rails[1].address()]);
    let host = Host::new()
        .on(front, address)
        // The job's processes bootstrap over this interface.
        .hca(0, "eth0", front, address)
        .hca(1, "eth1", &rails[0], own[0])
        .hca(2, "eth2", &rails[1], own[1])
        // This port's GID belongs to another container's address.
        .hca(3, "eth3", &rails[0], rails[0].address())
        // This port has no cable yet.
        .hca(4, "eth4", &rails[1], rails[1].address())
        .unplug(4)
        .allot(0)
        .allot(1)
        .allot(2)
        .allot(4);
    let mut container = engine.create(host.options(&[]), &["env"]);
    for (rail, own) in rails.iter().zip(own) {
        container.connect(rail, own);
    }
    container.start();
    let ended = container.wait().expect_code(0);

    assert_eq!(ended.variable("NCCL_IB_HCA"), Some("=mlx5_1,mlx5_2"));
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some(OWN_SLOT));
    assert_eq!(ended.variable("NCCL_SOCKET_IFNAME"), Some("eth0"));
    let known = ["PATH", "HOSTNAME", "HOME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME"];
    assert!(ended.stdout.lines().all(|line| known.contains(&line.split('=').next().unwrap())), "{ended:#?}");
    ended
        .expect_line([concat!(
            "rdma-init ",
            env!("CARGO_PKG_VERSION"),
            ": RoCE, 2 of 5 ports, but memory cannot be pinned, profile generic-roce"
        )])
        .expect_line(["use", "mlx5_1", "mlx5_2", "Ethernet, 200 Gb/sec (4X HDR)"])
        .expect_line(["skip", "mlx5_0", "eth0", "carries the default route"])
        .expect_line(["skip", "mlx5_3", "not allotted to this container"])
        .expect_line(["skip", "mlx5_4", "the port is DOWN"])
        .expect_line(["set", "NCCL_IB_HCA", "=mlx5_1,mlx5_2"])
        .expect_line(["set", "NCCL_IB_GID_INDEX", OWN_SLOT, "RoCE v2"])
        .expect_line(["set", "NCCL_SOCKET_IFNAME", "eth0", "carries the default route"])
        .expect_line(["note:", "mlx5_4", "the port is DOWN"])
        .expect_line(["fix:", "cable"]);
}

/// The engine's client reads the format `docker`, and uses the rest of each line unchanged.
#[test]
fn the_engine_reads_the_format_that_is_for_it() {
    let Some(engine) = engine() else { return };
    let (folder, _) = file("");
    let path = folder.path().join("variables");
    let values = [
        ("T_CODE", "a;touch x"),
        ("T_DOLLAR", "$HOME $(id) `id` ${PATH}"),
        ("T_QUOTES", "it's \"so\" \\"),
        ("T_SPACES", "  two # x  "),
        ("T_EMPTY", ""),
        ("T_EQUALS", "=mlx5_1,mlx5_2"),
        ("T_LONG", &"x".repeat(60_000)),
    ];
    let mut program = std::process::Command::new(crate::support::binary());
    program.env_clear().env("RDMA_INIT_CONFIG", "/dev/null");
    program.args(["env", "--facts", "demo:infiniband", "--format", "docker"]);
    // The client would fail on these values and then use no variable at all.
    let hostile = [("T_LINES", "1\nT_MORE=2".to_owned()), ("T_LONGER", "x".repeat(70_000))];
    let values = values.map(|(name, value)| (name, value.to_owned()));
    for (name, value) in values.iter().chain(&hostile) {
        program.args(["--set", &format!("{name}={value}")]);
    }
    let output = program.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    fs::write(&path, output.stdout).unwrap();
    let options = ["--env-file", path.to_str().unwrap(), "--entrypoint", "/bin/env"];
    let ended = engine.run(options, &[]).expect_code(0);
    for (name, value) in &values {
        assert_eq!(ended.variable(name), Some(value.as_str()), "{name}");
    }
    assert!(ended.variable("T_MORE").is_none() && ended.variable("T_LONGER").is_none());
}

#[test]
fn a_running_container_can_be_asked() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let mut container = engine.start(host.options(&[]), &["sh", "-c", "echo ready; exec sleep 1000"]);
    container.wait_for("ready");

    let plan = container.exec(&["/rdma-init", "plan"]).expect_code(0);
    let facts = container.exec(&["/rdma-init", "inspect", "--json"]).expect_code(0);
    let env = container.exec(&["/rdma-init", "env", "--format", "docker"]).expect_code(0);
    // An entering process does not inherit the variables, but can get them with `env`.
    let bare = container.exec(&["sh", "-c", "env | grep NCCL"]).expect_code(1);
    let filled =
        container.exec(&["sh", "-c", "eval \"$(/rdma-init env)\" && env | grep NCCL"]).expect_code(0);
    let on_its_own = container.exec(&["/rdma-init", "--", "env"]).expect_code(0);

    assert_eq!(bare.stdout, "");
    let mut found: Vec<&str> = filled.stdout.lines().collect();
    let mut wanted = ["NCCL_IB_GID_INDEX=5", "NCCL_IB_HCA==mlx5_0", "NCCL_SOCKET_IFNAME=eth0"];
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    let mut printed: Vec<&str> = env.stdout.lines().collect();
    printed.sort_unstable();
    assert_eq!(printed, wanted);
    assert_eq!(on_its_own.variable("NCCL_IB_HCA"), Some("=mlx5_0"));

    let facts: serde_json::Value = serde_json::from_str(&facts.stdout).unwrap();
    assert_eq!(facts["rdma"][0]["name"], "mlx5_0", "{facts:#}");
    assert_eq!(facts["rdma"][0]["ports"][0]["gids"]["slots"].as_array().unwrap().len(), 6, "{facts:#}");
    assert_eq!(facts["dmi"]["vendor"], "Example Cloud", "{facts:#}");

    container.signal("TERM");
    let ended = container.wait().expect_code(143);
    // The start's report contains every line that `plan` prints later.
    for line in plan.stdout.lines() {
        assert!(ended.stderr.contains(line), "{line:?} was not said at the start: {ended:#?}");
    }
}

#[test]
fn what_the_user_sets_stands() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let set =
        ["--env", "NCCL_IB_HCA=mlx5_7", "--env", "NCCL_IB_GID_INDEX=3", "--env", "NCCL_SOCKET_IFNAME=eth"];
    let ended = engine.run(host.options(&set), &["env"]).expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_HCA"), Some("mlx5_7"));
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some("3"));
    assert_eq!(ended.variable("NCCL_SOCKET_IFNAME"), Some("eth"));
    // A line says what is wrong with the value.
    ended
        .expect_line(["NCCL_IB_HCA=mlx5_7 (environment)", "does not have", "mlx5_0"])
        .expect_line(["fix:", "Remove NCCL_IB_HCA"]);
}

#[test]
fn an_index_of_the_user_that_leads_to_the_nodes_gid_stands_and_is_explained() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let ended = engine.run(host.options(&["--env", "NCCL_IB_GID_INDEX=3"]), &["env"]).expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some("3"));
    assert_eq!(ended.variable("NCCL_IB_HCA"), Some("=mlx5_0"));
    let others = engine.network().host_address();
    ended.expect_line([
        "With NCCL_IB_GID_INDEX=3 (environment), NCCL uses the node's GIDs: on mlx5_0, index 3",
        &format!("{others}, which is the node's (index {OWN_SLOT} is this container's)"),
    ]);
}

#[test]
fn an_empty_value_counts_as_set() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let ended = engine.run(host.options(&["--env", "NCCL_IB_HCA="]), &["env"]).expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_HCA"), Some(""));
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some(OWN_SLOT));
    ended.expect_line(["yours", "NCCL_IB_HCA", "(empty)", "environment"]);
}

#[test]
fn what_etc_nccl_conf_says_stands() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let (_folder, conf) = file("# the site's\nNCCL_IB_GID_INDEX=5\nNCCL_SOCKET_IFNAME=eth0\n");
    let mount = format!("{conf}:/etc/nccl.conf:ro");
    let ended = engine.run(host.options(&["--volume", &mount]), &["env"]).expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_HCA"), Some("=mlx5_0"));
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), None, "{ended:#?}");
    assert_eq!(ended.variable("NCCL_SOCKET_IFNAME"), None, "{ended:#?}");
    ended.expect_line(["yours", "NCCL_IB_GID_INDEX", "5", "/etc/nccl.conf:2"]);
}

#[test]
fn the_image_s_configuration_counts() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let (_folder, config) =
        file("keep = [\"NCCL_IB_HCA\"]\nset = { NCCL_DEBUG = \"WARN\" }\nlog-level = \"error\"\n");
    let mount = format!("{config}:/etc/rdma-init.toml:ro");
    let options = ["--volume", &mount, "--env", "RDMA_INIT_LOG_LEVEL=info"];
    let ended = engine.run(host.options(&options), &["env"]).expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_HCA"), None, "{ended:#?}");
    assert_eq!(ended.variable("NCCL_DEBUG"), Some("WARN"));
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some(OWN_SLOT));
    ended.expect_line(["unset", "NCCL_IB_HCA"]);
}

#[test]
fn a_broken_configuration_ends_the_container_and_names_the_mistake() {
    let Some(engine) = engine() else { return };
    engine.run(["--env", "RDMA_INIT_MEMLOCK=enforse"], &["true"]).expect_code(125).expect_line([
        "RDMA_INIT_MEMLOCK",
        "enforse",
        "enforce",
    ]);
    engine
        .run(["--env", "RDMA_INIT_MEMLOK=enforce"], &["true"])
        .expect_code(0)
        .expect_line(["RDMA_INIT_MEMLOK is not known", "did you mean RDMA_INIT_MEMLOCK?"]);
}

#[test]
fn the_report_can_be_json() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let ended = engine.run(host.options(&["--env", "RDMA_INIT_LOG_FORMAT=json"]), &["true"]).expect_code(0);
    let lines = json_lines(&ended);
    let hca = lines.iter().find(|line| line["variable"] == "NCCL_IB_HCA").unwrap();
    assert_eq!((&hca["value"], &hca["outcome"]), (&"=mlx5_0".into(), &"filled".into()), "{ended:#?}");
    let plan = lines.iter().find(|line| line["event"] == "plan").unwrap();
    assert_eq!(plan["fabric"], "verbs", "{ended:#?}");
}

#[test]
fn a_json_report_is_json_to_the_last_line() {
    let Some(engine) = engine() else { return };
    let json = ["--env", "RDMA_INIT_LOG_FORMAT=json"];
    json_lines(&engine.run(json, &["no-such-command"]).expect_code(127));
    let options = [json.as_slice(), &["--env", "RDMA_INIT_REQUIRE_RDMA=true"]].concat();
    json_lines(&engine.run(options, &["true"]).expect_code(121));
}

#[track_caller]
fn json_lines(ended: &Ended) -> Vec<serde_json::Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    ended.stderr.lines().map(parse).collect()
}

#[test]
fn unallotted_devices_are_not_used() {
    let Some(engine) = engine() else { return };
    let network = engine.network();
    let address = network.address();
    let host = Host::new().on(network, address).hca(0, "eth0", network, address);
    let ended = engine.run(host.options(&[]), &["env"]).expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_HCA"), None);
    ended
        .expect_said("none is allotted to this container")
        .expect_line(["fix:", "Docker: --device /dev/infiniband"]);
}

#[test]
fn a_node_that_the_engine_denies_is_named_with_the_error() {
    let Some(engine) = engine() else { return };
    let network = engine.network();
    let address = network.address();
    let host = Host::new().on(network, address).hca(0, "eth0", network, address);
    // The node has the device number of the real uverbs0, and the engine was not asked to allow this device.
    let make = "mkdir /dev/infiniband && mknod -m 666 /dev/infiniband/uverbs0 c 231 192";
    let ended = engine.after(make, host.options(&[]), "/rdma-init -- env").expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_HCA"), None);
    ended
        .expect_line(["warning:", "mlx5_0", "the uverbs node cannot be opened: EPERM"])
        .expect_line(["fix:", "docker run --device"]);
}

#[test]
fn a_node_that_its_file_mode_denies_to_the_user_is_named_with_the_error() {
    let Some(engine) = engine() else { return };
    let network = engine.network();
    let address = network.address();
    let host = Host::new().on(network, address).hca(0, "eth0", network, address).mount_nodes("nodes");
    let node = host.folder("nodes").join("uverbs0");
    fs::write(&node, "").unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o600)).unwrap();
    let ended = engine.run(host.options(&["--user", "65534"]), &["env"]).expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_HCA"), None);
    ended
        .expect_line(["warning:", "mlx5_0", "the uverbs node cannot be opened: EACCES"])
        .expect_line(["fix:", "if the container does not run as root"]);
}

#[test]
fn without_a_network_the_command_starts_and_is_told_so() {
    let Some(engine) = engine() else { return };
    let network = engine.network();
    let host = Host::new().hca(0, "eth0", network, network.address()).allot(0);
    let ended = engine.run(host.options(&["--network", "none"]), &["env"]).expect_code(0);
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some("3"));
    assert_eq!(ended.variable("NCCL_SOCKET_IFNAME"), None);
    ended
        .expect_line(["note: The job uses the node's GIDs: mlx5_0 with", "at index 3"])
        .expect_line(["fix:", "name it in NCCL_SOCKET_IFNAME"]);
    engine
        .run(["--network", "none"], &["sh", "-c", "echo started"])
        .expect_code(0)
        .expect_stdout("started\n")
        .expect_said("there is no RDMA device in this container");
}

#[test]
fn a_container_that_is_started_again_decides_again() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let mut container = engine.create(host.options(&[]), &["env"]);
    container.start();
    let first = container.wait_again().expect_code(0);
    let host = host.unplug(0);
    container.start();
    let second = container.wait_again().expect_code(0);
    drop(host);
    assert_eq!(first.variable("NCCL_IB_HCA"), Some("=mlx5_0"));
    assert_eq!(second.variable("NCCL_IB_HCA"), None, "{second:#?}");
}
