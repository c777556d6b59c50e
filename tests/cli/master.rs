//! Tests `wait-for-master`: the command starts once the name in `MASTER_ADDR` resolves. The files for name
//! lookups are the test's own.

use std::process::Command;

use super::run::{Ran, run};
use crate::support::process::{from_scratch, surroundings};
use crate::support::{binary, namespace};

/// Starts a script with the program in `$0`, as node NODE_RANK of two. No DNS server answers.
fn on_node(node: &str, script: &str) -> Option<Ran> {
    if !namespace::can_be_made() {
        return None;
    }
    let script = format!(
        r#"
        ip link set lo up
        mount -t tmpfs none /mnt
        echo '127.0.0.1 localhost' >/mnt/hosts
        echo 'nameserver 127.0.0.1' >/mnt/resolv.conf
        mount --bind /mnt/hosts /etc/hosts
        mount --bind /mnt/resolv.conf /etc/resolv.conf
        export RDMA_INIT_STATE_DIR=/mnt/state
        export MASTER_ADDR=first.job NNODES=2 NODE_RANK={node} WORLD_SIZE=2 RANK={node}
        {script}"#
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--", "sh", "-ec", &script]).arg(binary());
    surroundings(&mut command);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    from_scratch(&mut command);
    Some(run(command))
}

#[test]
fn the_command_starts_once_the_name_of_the_master_resolves() {
    let script = r#"
        "$0" --wait-for-master 10m -- echo started >/mnt/out 2>/mnt/said &
        until grep -q 'waiting up to 10m until MASTER_ADDR=first.job resolves' /mnt/said; do sleep 0.05; done
        [ ! -s /mnt/out ]
        "$0" status >/mnt/status && exit 9
        grep -q 'the start is under way: waiting up to 10m until MASTER_ADDR=first.job resolves' /mnt/status || { cat /mnt/status >&2; exit 8; }
        echo '10.0.0.9 first.job' >>/mnt/hosts
        wait
        cat /mnt/said >&2
        cat /mnt/out
    "#;
    let Some(ran) = on_node("1", script) else { return };
    let ran = ran.expect_code(0);
    assert_eq!(ran.text(), "started\n");
    assert!(ran.stderr.contains("MASTER_ADDR=first.job resolves to 10.0.0.9 after "), "{ran:#?}");
}

#[test]
fn the_command_starts_without_the_master_when_the_time_is_over() {
    let script = r#"exec "$0" --wait-for-master 100ms -- echo started"#;
    let Some(ran) = on_node("1", script) else { return };
    let ran = ran.expect_code(0);
    assert_eq!(ran.text(), "started\n");
    let warning = "MASTER_ADDR=first.job has not resolved within 100ms (wait-for-master)";
    assert!(ran.stderr.contains(warning), "{ran:#?}");
    assert!(ran.stderr.contains("The command starts without it."), "{ran:#?}");
}

#[test]
fn an_odd_name_of_the_master_writes_no_line_of_its_own() {
    let script =
        r#"MASTER_ADDR="$(printf 'a\033[2Jb%01000d' 0)" exec "$0" --wait-for-master 100ms -- echo started"#;
    let Some(ran) = on_node("1", script) else { return };
    let ran = ran.expect_code(0);
    let line = "waiting up to 100ms until MASTER_ADDR=a\u{fffd}[2Jb000";
    assert!(ran.stderr.contains(line) && !ran.stderr.contains('\u{1b}'), "{ran:#?}");
    assert!(!ran.stderr.contains(&"0".repeat(400)), "{ran:#?}");
}

/// However long the machine takes for all of it, that includes both the wait and the command.
#[test]
fn the_wait_for_the_master_is_no_time_of_the_command() {
    let script = r#"cat /proc/uptime >&2; exec "$0" --supervise --wait-for-master 1s -- sh -c 'exit 3'"#;
    let Some(ran) = on_node("1", script) else { return };
    let ran = ran.expect_code(3);
    let [started, ended] = [ran.stderr.clone(), std::fs::read_to_string("/proc/uptime").unwrap()]
        .map(|uptime| uptime.split(' ').next().unwrap().parse::<f64>().unwrap());
    let (_, time) = ran.stderr.split_once("sh ended with exit code 3 after ").expect("the line of the end");
    let (time, _) = time.split_once(".\n").unwrap();
    let time = humantime::parse_duration(time).unwrap();
    // The kernel's time has two digits.
    let left = ended - started - 1.0 + 0.01;
    assert!(!time.is_zero() && time.as_secs_f64() <= left, "not {left} s: {ran:#?}");
}

#[test]
fn the_first_node_does_not_wait_for_itself() {
    let script = r#"exec "$0" --wait-for-master 10m -- echo started"#;
    let Some(ran) = on_node("0", script) else { return };
    let ran = ran.expect_code(0);
    assert!(!ran.stderr.contains("waits"), "{ran:#?}");
    assert_eq!(ran.text(), "started\n");
}

#[test]
fn a_wait_without_a_name_is_told() {
    let script = r#"unset MASTER_ADDR; exec "$0" --wait-for-master 10m -- echo started"#;
    let Some(ran) = on_node("1", script) else { return };
    let ran = ran.expect_code(0);
    let note = "rdma-init: The key wait-for-master has no effect, because MASTER_ADDR is not set.";
    assert!(ran.stderr.contains(note), "{ran:#?}");
    assert_eq!(ran.text(), "started\n");
}
