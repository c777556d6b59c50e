//! Tests what a start writes into vLLM's list of the variables that each node keeps for itself.

use std::fs;

use crate::support::docker::host::Host;
use crate::support::docker::{Ended, Engine, engine};

const LIST: &str = "/root/.config/vllm/ray_non_carry_over_env_vars.json";

/// Runs a container with one HCA. Its image has these packages, according to pip's records. Root first
/// prepares it with a script, and then the program prints the list.
fn run(engine: &Engine, packages: &[&str], options: &[&str], script: &str) -> Ended {
    let host = Host::with_one_hca(engine);
    let folder = host.folder("packages");
    for package in packages {
        fs::create_dir(folder.join(format!("{package}.dist-info"))).unwrap();
    }
    let volume = format!("{}:/packages:ro", folder.display());
    let home = ["--volume", &volume, "--env", "PYTHONPATH=/packages", "--env", "HOME=/root"];
    let options = [&home[..], options].concat();
    engine.after(script, host.options(&options), &format!("/rdma-init -- cat {LIST}"))
}

const BOTH: &[&str] = &["ray-2.60.0", "vllm-0.23.0"];

#[test]
fn what_was_filled_in_is_named_after_the_users_own() {
    let Some(engine) = engine() else { return };
    let ended = run(engine, BOTH, &["--env", "NCCL_IB_GID_INDEX=5"], "true").expect_code(0);
    let names: Vec<String> = serde_json::from_str(&ended.stdout).unwrap();
    let is_there = |name: &str| names.iter().any(|known| known == name);
    assert!(is_there("NCCL_IB_HCA") && is_there("NCCL_SOCKET_IFNAME"), "{names:?}");
    // This variable is the user's, and vLLM may copy it.
    assert!(!is_there("NCCL_IB_GID_INDEX"), "{names:?}");

    let own = format!("mkdir -p /root/.config/vllm && echo '[\"MINE\"]' > {LIST}");
    let ended = run(engine, BOTH, &[], &own).expect_code(0);
    let names: Vec<String> = serde_json::from_str(&ended.stdout).unwrap();
    assert!(names[0] == "MINE" && names.iter().any(|name| name == "NCCL_IB_GID_INDEX"), "{names:?}");
}

#[test]
fn nothing_is_lost_and_nothing_is_written_where_it_is_not_asked_for() {
    let Some(engine) = engine() else { return };
    let broken = format!("mkdir -p /root/.config/vllm && echo '[\"MINE\",]' > {LIST}");
    run(engine, BOTH, &[], &broken)
        .expect_code(0)
        .expect_line(["warning:", LIST, "is not a JSON list"])
        .expect_stdout("[\"MINE\",]\n");
    for (packages, options) in [(&BOTH[1..], &[][..]), (BOTH, &["--env", "RDMA_INIT_WRITE_NCCL_CONF=false"])]
    {
        let ended = run(engine, packages, options, "true").expect_code(1);
        assert!(ended.stdout.is_empty(), "{ended:#?}");
    }
    // Many nodes may share the home directory.
    run(engine, BOTH, &["--tmpfs", "/root"], "true").expect_code(1).expect_line([
        "vLLM's list",
        "/root is a mount, which",
        "NCCL_IB_HCA",
    ]);
}
