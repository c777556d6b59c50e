//! Tests containers that try to run code in another container of the engine.

use std::os::unix::fs::PermissionsExt;

use crate::support::docker::{Container, Engine, engine};

const OWN: &str = "NCCL_IB_TC=106\nNCCL_TOPO_FILE=/topology.xml\n";
const HARMLESS: &str = "NCCL_IB_TC=106\n";
/// The settings are flags, because a process that enters inherits the container's environment.
const JOB: [&str; 8] = [
    "--set",
    "NCCL_IB_TC=106",
    "--set",
    "NCCL_TOPO_FILE=/topology.xml",
    "--",
    "sh",
    "-c",
    "echo ready; exec sleep 1000",
];
/// Root in a container with as few privileges as possible.
const ATTACKER: [&str; 4] = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"];

fn victim<'a>(engine: &'a Engine, name: &str, options: &[&str]) -> Container<'a> {
    let all = [&["--entrypoint", "/rdma-init"][..], options].concat();
    let mut container = engine.start_as(name, all, &JOB);
    container.wait_for("ready");
    container
}

/// Returns the variables that this user's process gets when it enters, and its messages.
fn given(container: &Container, user: &str) -> (String, String) {
    let exec = ["/rdma-init", "exec", "--", "sh", "-c", "env | grep -E 'NCCL|PRELOAD|ENV=' || true"];
    let ended = container.docker(["exec", "--user", user], &exec).expect_code(0);
    let mut lines: Vec<&str> = ended.stdout.lines().collect();
    lines.sort_unstable();
    (lines.iter().map(|line| format!("{line}\n")).collect(), ended.stderr)
}

/// Returns the victim's own state, as far as an attacker can read it, with malicious variables added.
fn forged(container: &Container) -> String {
    let script = "cat /run/rdma-init/plan.json /dev/shm/rdma-init-*/plan.json 2>/dev/null";
    let text = container.exec(&["sh", "-c", script]).stdout;
    let evil = r#""filled": {"LD_PRELOAD": "/tmp/evil.so", "BASH_ENV": "/tmp/evil", "NCCL_NET_PLUGIN": "/tmp/evil.so","#;
    assert!(text.contains("\"filled\": {"), "{text}");
    text.replace("\"filled\": {", evil)
}

/// Writes a text into files. A container does it; its options say what it shares with the victim.
fn attack(engine: &Engine, options: &[&str], text: &str, files: &[&str]) {
    let script = "for file; do mkdir -p ${file%/*}; echo \"$TEXT\" >$file; done";
    let text = format!("TEXT={text}");
    let all = [&ATTACKER[..], options, &["--env", &text, "--entrypoint", "/bin/sh"]].concat();
    engine.run(all, &[&["-c", script, "sh"], files].concat());
}

#[test]
fn a_container_that_shares_the_ipc_namespace_runs_no_code() {
    let Some(engine) = engine() else { return };
    let files = [
        "/dev/shm/rdma-init-0/plan.json",
        "/dev/shm/rdma-init-1234/plan.json",
        "/dev/shm/rdma-init-1235/plan.json",
    ];
    for (options, own, other) in [
        (&[][..], "0", OWN),
        // Root uses only harmless variables from another user's state.
        (&["--user", "1234"], "1234", HARMLESS),
        (&["--read-only"], "0", HARMLESS),
        (&["--read-only", "--user", "1234", "--cap-drop", "ALL"], "1234", HARMLESS),
    ] {
        let name = engine.named();
        let all = [&["--ipc", "shareable"], options].concat();
        let victim = victim(engine, &name.name, &all);
        let ipc = format!("container:{}", name.name);
        for _ in 0..2 {
            assert_eq!(given(&victim, own), (OWN.to_owned(), String::new()), "{options:?}");
            let (found, said) = given(&victim, "1235");
            assert_eq!(found, other, "{options:?}: {said}");
            assert_eq!(said.contains("are omitted"), other == HARMLESS, "{options:?}: {said}");
            attack(engine, &["--ipc", &ipc], &forged(&victim), &files);
        }
    }
}

/// The containers share an emptyDir at /run and a PID namespace. PID 1 belongs to the other container.
#[test]
fn a_container_that_shares_run_and_processes_runs_no_code() {
    let Some(engine) = engine() else { return };
    let pod = engine.named();
    let pause = [&ATTACKER[..], &["--entrypoint", "/bin/sh"]].concat();
    let mut pause = engine.start_as(&pod.name, pause, &["-c", "echo ready; exec sleep 1000"]);
    pause.wait_for("ready");
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let volume = format!("{}:/run", folder.path().display());
    let pid = format!("container:{}", pod.name);
    let name = engine.named();
    let shared = ["--volume", &volume, "--pid", &pid];
    let victim = victim(engine, &name.name, &[&shared[..], &["--read-only"]].concat());
    // PID 1 belongs to another container, so nothing confirms the state, and the program says so.
    let (found, said) = given(&victim, "0");
    assert_eq!(found, HARMLESS);
    assert!(said.contains("are omitted") && said.contains("NCCL_TOPO_FILE"), "{said}");
    attack(engine, &shared, &forged(&victim), &["/run/rdma-init/plan.json"]);
    let (found, said) = given(&victim, "0");
    assert_eq!(found, HARMLESS);
    assert!(said.contains("LD_PRELOAD") && said.contains("NCCL_NET_PLUGIN"), "{said}");
}
