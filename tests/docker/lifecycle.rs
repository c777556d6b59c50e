//! Tests the program in a real container, as PID 1 and next to another PID 1: exit codes, signals, orphans.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::docker::host::Host;
use crate::support::docker::{Container, Engine, engine};
use crate::support::poll_until;
use crate::support::running::is_in_main;

/// A command that prints the signals that it gets, and continues.
const LISTENER: &str =
    "for signal in HUP INT USR1 USR2 WINCH TERM; do trap \"echo got $signal\" $signal; done
    trap 'echo got TERM; exit 7' TERM
    echo ready
    while :; do sleep 1000 & wait $!; done";

/// Starts a container whose command sleeps.
fn sleeper(engine: &Engine) -> Container<'_> {
    let mut container = engine.start::<&str>([], &["sh", "-c", "echo ready; exec sleep 1000"]);
    container.wait_for("ready");
    container
}

#[test]
fn the_container_ends_with_the_command_s_code() {
    let Some(engine) = engine() else { return };
    for code in [0, 1, 121, 255] {
        engine.script::<&str>([], &format!("exit {code}")).expect_code(code);
    }
}

#[test]
fn a_signal_that_kills_the_command_shows_in_the_code() {
    let Some(engine) = engine() else { return };
    for (signal, code) in [("KILL", 137), ("SEGV", 139), ("TERM", 143)] {
        engine.script::<&str>([], &format!("kill -{signal} $$")).expect_code(code);
    }
}

#[test]
fn a_command_that_cannot_run_is_named() {
    let Some(engine) = engine() else { return };
    engine
        .run::<&str>([], &["torchrun", "train.py"])
        .expect_code(127)
        .expect_said("cannot run torchrun: it is not in the PATH");
    engine
        .run::<&str>([], &["/train.sh"])
        .expect_code(127)
        .expect_said("cannot run /train.sh: there is no such file");
    engine.run::<&str>([], &["/bin"]).expect_code(126).expect_said("cannot run /bin: it is a directory");
}

#[test]
fn without_a_command_the_container_says_how_to_give_one() {
    let Some(engine) = engine() else { return };
    engine
        .run::<&str>([], &[])
        .expect_code(125)
        .expect_said("there is nothing to run")
        .expect_said("-- COMMAND");
}

#[test]
fn docker_stop_ends_the_container_at_once() {
    let Some(engine) = engine() else { return };
    let container = sleeper(engine);
    stop(&container);
    container.wait().expect_code(143);
}

/// Stops the container. If the engine had to kill it, the code would be 137.
#[track_caller]
fn stop(container: &Container) {
    container.docker(["stop", "-t", "60"], &[]).expect_code(0);
}

#[test]
fn docker_stop_reaches_the_command_which_decides_on_the_code() {
    let Some(engine) = engine() else { return };
    let mut container = engine.start::<&str>([], &["sh", "-c", LISTENER]);
    container.wait_for("ready");
    stop(&container);
    let ended = container.wait().expect_code(7);
    assert_eq!(ended.stdout, "ready\ngot TERM\n");
}

#[test]
fn a_stop_right_after_the_start_is_not_lost() {
    let Some(engine) = engine() else { return };
    for _ in 0..3 {
        let container = engine.create::<&str>([], &["sleep", "1000"]);
        container.docker(["start"], &[]).expect_code(0);
        // The kernel drops signals to PID 1 until the engine's own process has become the program, which is in `main`.
        let pid = container.inspect("{{.State.Pid}}").parse().unwrap();
        let comm = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        poll_until("the program runs", || (comm() == "rdma-init\n" && is_in_main(pid)).then_some(()));
        stop(&container);
        assert_eq!(container.inspect("{{.State.ExitCode}}"), "143");
    }
}

#[test]
fn another_stop_signal_reaches_the_command() {
    let Some(engine) = engine() else { return };
    // Signal 37 is the real-time signal that stops a systemd.
    let mut container = engine.start(
        ["--stop-signal", "37"],
        &["sh", "-c", "trap 'echo got 37; exit 0' 37\necho ready\nsleep 1000 & wait"],
    );
    container.wait_for("ready");
    stop(&container);
    container.wait().expect_code(0).expect_stdout("ready\ngot 37\n");
}

#[test]
fn every_signal_of_docker_kill_reaches_the_command() {
    let Some(engine) = engine() else { return };
    let mut container = engine.start::<&str>([], &["sh", "-c", LISTENER]);
    container.wait_for("ready");
    for signal in ["HUP", "INT", "USR1", "USR2", "WINCH"] {
        container.signal(signal);
        container.wait_for(&format!("got {signal}"));
    }
    container.signal("TERM");
    let ended = container.wait().expect_code(7);
    assert_eq!(ended.stdout.matches("got").count(), 6, "none came twice: {ended:#?}");
}

#[test]
fn docker_kill_and_the_client_s_ctrl_c_end_the_container() {
    let Some(engine) = engine() else { return };
    let container = sleeper(engine);
    container.signal("KILL");
    container.wait().expect_code(137);

    // Without a terminal, the client forwards its own signals.
    let container = sleeper(engine);
    let client = Pid::from_raw(container.client().try_into().unwrap());
    kill(client, Signal::SIGINT).unwrap();
    container.wait().expect_code(130);
}

#[test]
fn orphans_are_reaped() {
    let Some(engine) = engine() else { return };
    // The parents of these processes end before them, so PID 1 adopts them. The shell waits until none is
    // left, neither running nor as a zombie.
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do (sh -c 'exit 3' & sleep 0 &); done
        until [ \"$(ls -d /proc/[0-9]* | grep -cv -e '/1$' -e \"/$$\\$\")\" -le 2 ]; do :; done
        echo clean
        exec sleep 1000";
    let mut container = engine.start::<&str>([], &["sh", "-c", script]);
    container.wait_for("clean");
    // PID 1 also adopts the orphans of a process that entered.
    container.exec(&["sh", "-c", "(sh -c 'exit 3' &) ; (sleep 0 &)"]).expect_code(0);
    poll_until("only PID 1 and the command are left", || {
        let top = container.docker(["top"], &["-o", "pid,stat,args"]).expect_code(0).stdout;
        let mut processes: Vec<&str> = top.lines().skip(1).collect();
        // The engine sorts by the host's PIDs, which start again at the end of their range.
        processes.sort_by_key(|process| !process.contains("/rdma-init -- sh"));
        let expected = matches!(processes[..], [init, command]
            if init.contains("/rdma-init -- sh") && command.ends_with("sleep 1000"));
        expected.then_some(())
    });
    stop(&container);
    container.wait().expect_code(143);
}

#[test]
fn orphans_do_not_keep_the_container() {
    let Some(engine) = engine() else { return };
    engine.script::<&str>([], "(sleep 1000 >/dev/null 2>&1 &)\nexit 5").expect_code(5);
}

#[test]
fn the_command_starts_as_the_engine_would_have_started_it() {
    let Some(engine) = engine() else { return };
    let script = "ls /proc/$$/fd; ls -l /proc/$$/cwd | grep -o '[^ ]*$'; exec grep -e SigBlk -e SigIgn -e SigCgt /proc/self/status";
    let plain = ["--workdir", "/work", "--entrypoint", "sh"];
    let plain = engine.run(plain, &["-c", script]).expect_code(0);
    // PID 1 leaves the directory only once the command runs, so the command checks repeatedly.
    let left = "for _ in $(seq 5000); do ls -l /proc/1/cwd | grep ' /$' >&2 && break; done";
    let script = format!("grep -x PPid:.1 /proc/$$/status >&2; {left}; {script}");
    engine
        .script(["--workdir", "/work"], &script)
        .expect_code(0)
        .expect_stdout(&plain.stdout)
        .expect_said("PPid:\t1")
        // PID 1's working directory is /, so that PID 1 keeps no other directory busy.
        .expect_said("/proc/1/cwd -> /");
}

#[test]
fn standard_input_and_output_are_the_command_s_alone() {
    let Some(engine) = engine() else { return };
    let container = engine.named();
    let mut client = engine.run_command(&container.name, ["--interactive"]);
    client
        .arg(&engine.image)
        .args(["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let mut stdin = client.stdin.take().unwrap();
    let sent: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let writer = {
        let sent = sent.clone();
        std::thread::spawn(move || stdin.write_all(&sent))
    };
    let output = client.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == sent, "{} of {} bytes came back", output.stdout.len(), sent.len());
}

#[test]
fn beside_the_host_s_pid_1_it_becomes_the_command() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let script = "echo pid $$; env | grep NCCL_IB_HCA; echo ready; exec sleep 1000";
    let mut container = engine.start(host.options(&["--pid", "host"]), &["sh", "-c", script]);
    container.wait_for("ready");
    // The engine identifies the container by the process that it started.
    let pid = container.inspect("{{.State.Pid}}");
    stop(&container);
    let ended = container.wait().expect_code(143);
    assert_eq!(ended.stdout, format!("pid {pid}\nNCCL_IB_HCA==mlx5_0\nready\n"));
}

#[test]
fn under_the_engine_s_own_init_it_becomes_the_command() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let script = "cat /proc/1/comm; grep PPid /proc/$$/status; env | grep NCCL_IB_HCA; exit 3";
    engine
        .script(host.options(&["--init"]), script)
        .expect_code(3)
        .expect_stdout("docker-init\nPPid:\t1\nNCCL_IB_HCA==mlx5_0\n");
}
