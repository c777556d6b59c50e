//! Tests `status --ras` with a server that sends recorded answers of NCCL's own RAS. tests/nccl uses NCCL's.

use std::process::Command;

use serde_json::Value;

use super::run::run;
use crate::support::namespace::can_be_made;
use crate::support::port::free_port;
use crate::support::process::rdma_init;
use crate::support::ras::{server, server_of_others};
use crate::support::running::after;

/// Runs a command, which must exit with this code. Returns its standard output.
fn said(command: Command, code: i32) -> String {
    String::from_utf8(run(command).expect_code(code).stdout).unwrap()
}

#[test]
fn the_ranks_are_asked_again_if_some_are_behind() {
    let (address, served) = server(&["2.32.3-behind", "2.32.3-behind"]);
    let mut status = rdma_init(["status", "--ras=1s"]);
    status.env("NCCL_RAS_ADDR", address);
    // The exit code is about this container, in which nothing was started.
    let said = said(status, 1);
    served.join().unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let [not_ready, first, again, last] = lines.as_slice() else { panic!("{said}") };
    assert!(not_ready.starts_with("not ready: "), "{said}");
    assert!(first.contains("rank 2 of 3 on ") && first.ends_with("a hang only if it stays."), "{said}");
    assert_eq!(*again, "asking again in 1s");
    // A busy machine takes longer than that second.
    let hang =
        last.strip_prefix("NCCL's RAS (2.32.3): the job hangs: in ").unwrap_or_else(|| panic!("{said}"));
    assert!(hang.contains("s, no rank has launched a collective; rank 2 of 3 on "), "{said}");
    assert!(hang.ends_with("it has launched 16 x AllReduce, others 17."), "{said}");
}

#[test]
fn one_answer_is_enough_if_no_rank_is_behind_or_missing() {
    let (address, served) = server(&["2.27.7-sound"]);
    let mut status = rdma_init(["status", "--ras"]);
    status.env("NCCL_RAS_ADDR", address);
    let said = said(status, 1);
    served.join().unwrap();
    assert!(said.contains("\nNCCL's RAS (2.27.7) sees no rank that is missing, "), "{said}");
    assert!(said.ends_with("That does not prove that the job makes progress.\n"), "{said}");
}

#[test]
fn programs_get_the_ranks_as_data() {
    let (address, served) = server(&["2.28.9-dead", "2.28.9-dead"]);
    let mut status = rdma_init(["status", "--json", "--ras=1s"]);
    status.env("NCCL_RAS_ADDR", address);
    let said = said(status, 1);
    served.join().unwrap();
    let document: Value = serde_json::from_str(&said).unwrap();
    let ras = &document["ras"];
    assert_eq!((&ras["answered"], &ras["hangs"]), (&Value::Bool(true), &Value::Bool(true)), "{said}");
    let dead = &ras["dead"][0];
    assert_eq!(
        (dead["rank"].as_u64(), dead["of"].as_u64(), dead["gpu"].as_i64()),
        (Some(1), Some(3), Some(1))
    );
    assert!(dead["pid"].as_u64() > Some(1) && dead["host"].is_string() && dead["error"].is_null(), "{said}");
    let behind = &ras["behind"][0];
    assert_eq!(behind["collective"], "AllReduce");
    let counts = ["launched", "others", "count"].map(|field| behind[field].as_u64().unwrap());
    assert_eq!((counts, behind["ranks"][0]["rank"].as_u64()), ([16, 17, 1], Some(2)));
    assert!(ras["message"].as_str().unwrap().contains("rank 1 of 3"), "{said}");
    // Without the option, RAS is not queried.
    let said = self::said(rdma_init(["status", "--json"]), 1);
    assert!(serde_json::from_str::<Value>(&said).unwrap().get("ras").is_none(), "{said}");
}

/// On the host's network, the jobs of all containers listen at one address.
#[test]
fn that_another_job_may_have_answered_is_said() {
    if !can_be_made() {
        return;
    }
    let (address, served) = server_of_others(&["2.28.9-sound"]);
    // The server stays outside of this PID namespace.
    let mut status = after("exec unshare --pid --fork --mount-proc", rdma_init(["status", "--ras"]));
    status.env("NCCL_RAS_ADDR", &address);
    let said = said(status, 1);
    served.join().unwrap();
    assert!(said.contains("\nNCCL's RAS (2.28.9) sees no rank that is missing, "), "{said}");
    let why = format!(
        " At {address}, a process outside this container answers, so the answer may be about another job."
    );
    assert!(said.contains(&why), "{said}");
}

#[test]
fn why_ras_was_not_asked_or_does_not_answer_is_said() {
    let with = |name: &str, value: &str| {
        let mut status = rdma_init(["status", "--ras=0s"]);
        status.env(name, value);
        said(status, 1).lines().last().unwrap().to_owned()
    };
    assert_eq!(
        with("NCCL_RAS_ENABLE", "0"),
        "NCCL's RAS is off: NCCL_RAS_ENABLE=0. Remove it, and start the job again."
    );
    let address = format!("127.0.0.1:{}", free_port());
    let refused = with("NCCL_RAS_ADDR", &address);
    let start = format!("cannot query NCCL's RAS at {address}: no process listens there. It answers once");
    assert!(refused.starts_with(&start), "{refused}");
    assert_eq!(
        with("NCCL_RAS_ADDR", "localhost"),
        "cannot query NCCL's RAS at localhost: the address cannot be used: it has no port. Set NCCL_RAS_ADDR to HOST:PORT or [IPV6]:PORT."
    );
}

/// A process that enters does not have the command's environment, but the command's start saved it.
#[test]
fn the_commands_own_variables_count() {
    let state = tempfile::tempdir().unwrap();
    let script = "env -u NCCL_RAS_ENABLE \"$0\" status --ras | tail -n 1";
    let program = crate::support::binary();
    let mut start = rdma_init(["--libraries=nccl", "--log-level=error", "--", "sh", "-c", script]);
    start.arg(program).env("NCCL_RAS_ENABLE", "2").env("RDMA_INIT_STATE_DIR", state.path().join("state"));
    assert_eq!(said(start, 0), "NCCL's RAS is off: NCCL_RAS_ENABLE=2. Remove it, and start the job again.\n");
}
