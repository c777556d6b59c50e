//! Runs torchrun with two workers that train together over gloo. torchrun starts each worker in its own
//! session.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use nix::libc;
use serde_json::Value;

use super::job::{Init, Job, surroundings};
use crate::support::port::free_port;
use crate::support::running::{as_pid_1, from_scratch, lives, status};
use crate::support::{DEADLINE, binary, poll_for, repository, status_field};

/// The directory with the programs of the PyTorch installation.
pub static PROGRAMS: LazyLock<String> = LazyLock::new(|| {
    let setup = repository("tests/launchers/torch.sh");
    let setup = Command::new(setup).stderr(Stdio::inherit()).output().unwrap();
    assert!(setup.status.success(), "PyTorch cannot be installed (see above)");
    String::from_utf8(setup.stdout).unwrap().trim_end().to_owned()
});

fn path() -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin", *PROGRAMS)
}

/// The two modes of worker.py: what the workers do when they are asked to end.
const SAVE: &str = "save";
const IGNORE: &str = "ignore";

const SAVING: Duration = Duration::from_secs(3);

/// Starts torchrun, and waits until the workers have taken their first step.
fn torchrun(init: Init, options: &[&str], mode: &str) -> Job {
    let script = repository("tests/launchers/worker.py").display().to_string();
    let options = [options, &["--set", "GLOO_SOCKET_IFNAME=lo"]].concat();
    let job = Job::start(init, &options, &path(), |folder| {
        let arguments = ["torchrun", "--standalone", "--nproc-per-node", "2"].map(str::to_owned);
        let worker = [script, folder.display().to_string(), mode.to_owned()];
        arguments.into_iter().chain(worker).collect()
    });
    job.wait_for("ready", 1)
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn a_stop_lets_the_workers_save_and_torchrun_decides_on_the_code() {
    for init in Init::BOTH {
        for options in [&[][..], &["--stop-timeout", "25s"]] {
            torchrun(init, options, SAVE)
                .end_by_signal(libc::SIGTERM)
                .expect_code(1)
                .expect_of_both("asked", 1)
                .expect_of_both("saved", 1)
                .expect_wait(SAVING)
                .expect_end_line(["torchrun ended with exit code 1 ", "SIGTERM was forwarded to it"])
                .expect_no_process_killed();
        }
    }
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn workers_that_ignore_a_stop_are_gone_after_the_stop_timeout() {
    for init in Init::BOTH {
        let job = torchrun(init, &["--stop-timeout", "2s"], IGNORE);
        for rank in [0, 1] {
            assert_eq!(job.lines("ready", rank), ["leads a session"]);
        }
        job.end_by_signal(libc::SIGTERM)
            .expect_code(137)
            .expect_of_both("asked", 1)
            .expect_of_both("saved", 0)
            .expect_wait(Duration::from_secs(2))
            .expect_end_line(["torchrun was killed by SIGKILL", "after the stop-timeout of 2s were killed"]);
    }
}

/// torchrun handles signals only once it has workers. If torchrun itself were PID 1, the kernel would drop
/// a stop signal that arrives while torchrun waits for another node.
#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn a_stop_while_torchrun_waits_for_other_nodes_ends_the_container() {
    let wait_for_others = || {
        let port = free_port();
        let endpoint = format!("127.0.0.1:{port}");
        let arguments =
            ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", &endpoint, "no-script.py"];
        let all: Vec<String> =
            [format!("{}/torchrun", *PROGRAMS)].into_iter().chain(arguments.map(str::to_owned)).collect();
        (all, move || {
            let there = poll_for(DEADLINE, || TcpStream::connect(("127.0.0.1", port)).ok());
            assert!(there.is_some(), "torchrun does not wait for other nodes");
        })
    };

    let (arguments, wait) = wait_for_others();
    let job = Job::start(Init::Pid1, &["--set", "GLOO_SOCKET_IFNAME=lo"], &path(), |_| arguments);
    wait();
    job.running.kill(libc::SIGTERM);
    let ended = job.running.end().expect_code(143);
    assert!(ended.stderr.contains("torchrun was killed by SIGTERM (exit code 143)"), "{ended:#?}");

    let (arguments, wait) = wait_for_others();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).env_clear().stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    surroundings(&mut command, &path(), folder.path());
    from_scratch(&mut command);
    let running = as_pid_1(command);
    wait();
    running.kill(libc::SIGTERM);
    // The kernel drops it at once: it is neither pending, nor caught, nor has it ended the process.
    let status = status(running.pid);
    let signals = |field| u64::from_str_radix(status_field(&status, field).unwrap(), 16).unwrap();
    let is_caught = signals("SigCgt") & 1 << (libc::SIGTERM - 1) != 0;
    assert!(!is_caught && signals("SigPnd") | signals("ShdPnd") == 0, "a PID 1 without us gets it: {status}");
    assert!(lives(running.pid), "{:#?}", running.end());
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn workers_whose_torchrun_was_killed_are_asked_once_and_may_save() {
    for init in Init::BOTH {
        torchrun(init, &["--drain-timeout", "20s"], SAVE)
            .end_by_killing_the_launcher()
            .expect_code(137)
            .expect_of_both("asked", 1)
            .expect_of_both("saved", 1)
            .expect_wait(SAVING)
            .expect_end_line(["torchrun was killed by SIGKILL (exit code 137)"])
            .expect_no_process_killed();
    }
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn workers_that_ignore_the_drain_are_gone_after_its_time() {
    for init in Init::BOTH {
        torchrun(init, &["--drain-timeout", "2s"], IGNORE)
            .end_by_killing_the_launcher()
            .expect_code(137)
            .expect_of_both("asked", 1)
            .expect_wait(Duration::from_secs(2))
            .expect_end_line(["after the drain-timeout of 2s were killed"]);
    }
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn without_a_drain_the_container_ends_with_torchrun() {
    torchrun(Init::Pid1, &[], SAVE)
        .end_by_killing_the_launcher()
        .expect_code(137)
        .expect_of_both("asked", 0)
        .expect_of_both("saved", 0);
}

/// torchrun does not forward SIGUSR1, and is killed by it.
#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn usr1_kills_torchrun_and_the_workers_are_drained() {
    for init in Init::BOTH {
        torchrun(init, &["--drain-timeout", "20s"], SAVE)
            .end_by_signal(libc::SIGUSR1)
            .expect_code(138)
            .expect_of_both("asked", 1)
            .expect_of_both("saved", 1)
            .expect_end_line([
                "torchrun was killed by SIGUSR1 (exit code 138)",
                "SIGUSR1 was forwarded to it",
            ])
            .expect_no_process_killed();
    }
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn the_workers_have_the_variables() {
    let job = torchrun(Init::Pid1, &["--set", "NCCL_DEBUG=WARN"], SAVE);
    for rank in [0, 1] {
        let environment = job.lines("environment", rank);
        for variable in ["GLOO_SOCKET_IFNAME=lo", "NCCL_DEBUG=WARN"] {
            assert!(environment.iter().any(|line| line == variable), "{variable}: {environment:#?}");
        }
    }
}

/// `inspect` finds the same NCCL library that PyTorch loads, without loading anything.
#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn the_nccl_that_is_found_is_pytorch_s() {
    let python = format!("{}/python", *PROGRAMS);
    let script = "import torch; print('.'.join(map(str, torch.cuda.nccl.version()))); \
                  print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libnccl.so' in line))";
    let said = Command::new(python).args(["-W", "ignore", "-c", script]).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let loaded = String::from_utf8(said.stdout).unwrap();

    let mut inspect = Command::new(binary());
    inspect.args(["inspect", "--json"]).env_clear().env("PATH", path()).env("RDMA_INIT_CONFIG", "/dev/null");
    let facts: Value = serde_json::from_slice(&inspect.output().unwrap().stdout).unwrap();
    let file = &facts["image"]["torch"]["nccl"];
    let libraries = facts["image"]["nccl"].as_array().unwrap();
    let found = libraries.iter().find(|library| library["path"] == *file).unwrap();
    let found = format!("{}\n{}\n", found["version"].as_str().unwrap(), file.as_str().unwrap());
    assert_eq!(found, loaded);
}
