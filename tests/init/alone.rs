//! Tests a container in which no second process can be started, or no descriptor is free: the command takes
//! the place of the program.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use nix::libc;

use crate::support::binary;
use crate::support::hang::Hang;
use crate::support::refused_call::refuse;
use crate::support::running::{Ended, Way, after, as_pid_1, hanging, in_place, rdma_init, send};

const WAYS: [Way; 2] = [(&[], as_pid_1), (&["--supervise"], in_place)];

/// Refuses each new process, as the kernel does at the limit of processes.
fn alone(mut command: Command) -> Command {
    let all = [libc::SYS_clone, libc::SYS_clone3];
    refuse(&mut command, &all, libc::EAGAIN);
    #[cfg(target_arch = "x86_64")]
    refuse(&mut command, &[libc::SYS_fork, libc::SYS_vfork], libc::EAGAIN);
    command
}

fn command(flags: &[&str]) -> Command {
    let script = "echo \"ran ${T_X:-unprepared}\"; exit 7";
    rdma_init([flags, &["--set", "T_X=prepared", "--", "sh", "-c", script]].concat())
}

#[test]
fn the_command_starts_in_place_as_it_is() {
    for (flags, start) in WAYS {
        let ended = start(alone(command(flags))).end().expect_code(7);
        assert_eq!(ended.stdout, "ran unprepared\n", "{ended:#?}");
        for part in ["cannot create the process", "EAGAIN", "as it would have been without rdma-init"] {
            assert_eq!(ended.stderr.matches(part).count(), 1, "{part}: {ended:#?}");
        }
    }
}

/// Tests the kernel's own limit with a user who may not exceed it.
#[test]
fn at_the_limit_of_processes_of_a_user_the_command_starts_in_place() {
    let first = "exec prlimit --nproc=1 setpriv --reuid 65532 --clear-groups";
    let ended = as_pid_1(after(first, command(&[]))).end().expect_code(7);
    assert_eq!(ended.stdout, "ran unprepared\n", "{ended:#?}");
    assert!(ended.stderr.contains("limit of processes or open files may be too low"), "{ended:#?}");
}

/// The command gets the signal state that it would have without the program.
#[test]
fn the_command_inherits_what_it_would_have_inherited() {
    for (flags, start) in WAYS {
        let ours = rdma_init([flags, &["--", "grep", "^Sig[BI]", "/proc/self/status"]].concat());
        let ended = start(alone(ours)).end().expect_code(0);
        let none = "0000000000000000";
        assert_eq!(ended.stdout, format!("SigBlk:\t{none}\nSigIgn:\t{none}\n"), "{ended:#?}");
    }
}

#[test]
fn it_refuses_where_a_key_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (config, log) = (folder.path().join("c.toml"), folder.path().join("log"));
    fs::write(&config, "require-rdma = true\n").unwrap();
    for (flags, start) in WAYS {
        let mut ours = alone(command(flags));
        ours.env("RDMA_INIT_CONFIG", &config).env("RDMA_INIT_TERMINATION_LOG", &log);
        let ended = start(ours).end().expect_code(121);
        assert_eq!(ended.stdout, "", "{ended:#?}");
        let line = ended.stderr.lines().find(|line| line.contains("refusing to start the command"));
        let line = line.unwrap_or_else(|| panic!("{ended:#?}"));
        assert!(
            line.contains("cannot create the process") && line.contains("and require-rdma does"),
            "{line}"
        );
    }
}

#[test]
fn commands_of_our_own_need_no_second_process() {
    let ended = as_pid_1(alone(rdma_init(["plan"]))).end().expect_code(0);
    assert!(ended.stdout.contains("no RDMA") || ended.stdout.contains("profile"), "{ended:#?}");
}

#[test]
fn without_a_descriptor_the_command_starts_in_place_too() {
    // The command is a static program, because the dynamic loader needs a descriptor.
    let program = binary();
    let mut ours = rdma_init(["--", program.to_str().unwrap(), "--version"]);
    ours.env_remove("RDMA_INIT_CONFIG");
    let ended = as_pid_1(after("ulimit -n 3; exec", ours)).end().expect_code(0);
    assert!(ended.stdout.starts_with("rdma-init "), "{ended:#?}");
    assert!(ended.stderr.contains("cannot create a pipe or an eventfd for the process"), "{ended:#?}");
    assert!(ended.stderr.contains("as it would have been without rdma-init"), "{ended:#?}");
}

/// The init's preparation is killed, and the init cannot start a process in its place.
#[test]
fn a_command_that_cannot_have_a_process_of_its_own_starts_in_place() {
    for (flags, is_pid_1) in [(&[][..], true), (&["--supervise"], false)] {
        let Some(ended) = without_a_process(command(flags), is_pid_1, |_| ()) else { return };
        let ended = ended.expect_code(7);
        assert_eq!(ended.stdout, "ran unprepared\n", "{ended:#?}");
        for part in ["the preparation was killed by SIGKILL", "cannot create the command's process"] {
            assert_eq!(ended.stderr.matches(part).count(), 1, "{part}: {ended:#?}");
        }
    }
}

/// An orphan gets the same parent as without the program, because the command would never reap it.
#[test]
fn a_command_that_starts_in_place_adopts_no_orphans() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = "read -r go <\"$1\"; orphan=$(sleep 1000 >/dev/null & echo $!);
        while read -r key value; do [ $key = PPid: ] && parent=$value; done </proc/$orphan/status;
        kill $orphan; [ $parent = $$ ] && echo adopted; echo done";
    let ours = rdma_init(["--supervise", "--", "sh", "-c", script, "sh", fifo.to_str().unwrap()]);
    let ended = without_a_process(ours, false, |group| {
        // Opening this succeeds once the command opens it; from then on, the command can start processes.
        let mut go = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        fs::write(group.join("pids.max"), "max").unwrap();
        go.write_all(b"go\n").unwrap();
    });
    let Some(ended) = ended else { return };
    assert_eq!(ended.expect_code(0).stdout, "done\n");
}

/// Runs the program in a control group that allows one process from its preparation on; the preparation is
/// killed. `None` if this machine cannot make such a group.
fn without_a_process(ours: Command, is_pid_1: bool, then: impl FnOnce(&Path)) -> Option<Ended> {
    let hang = Hang::interruptible("/sys/class/infiniband");
    let folder = tempfile::tempdir().unwrap();
    let group = limit_of_processes(folder.path().file_name()?.to_str()?)?;
    let join = format!("echo 0 > {}/cgroup.procs; exec", group.display());
    let running = hanging(after(&join, ours), is_pid_1, &hang);
    hang.wait();
    fs::write(group.join("pids.max"), "1").unwrap();
    send(running.child(), libc::SIGKILL);
    then(&group);
    let ended = running.end();
    let _ = fs::remove_dir(&group);
    Some(ended)
}

/// Makes a control group; `None` if this machine cannot.
fn limit_of_processes(name: &str) -> Option<std::path::PathBuf> {
    for root in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
        let group = Path::new(root).join(name);
        if fs::create_dir(&group).is_ok() {
            if group.join("pids.max").exists() {
                return Some(group);
            }
            let _ = fs::remove_dir(&group);
        }
    }
    crate::support::skip("no control group with a limit of processes can be made here");
    None
}
