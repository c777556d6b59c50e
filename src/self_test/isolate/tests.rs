use nix::libc;

use super::super::device::DeviceProbe;
use super::*;

const LONG: Duration = Duration::from_secs(30);

fn wanted() -> Wanted {
    "none_0:1:0".parse().unwrap()
}

fn one(each: Duration, work: Work) -> ProbeResult {
    run(&[wanted()], each, LONG, work).remove(0)
}

#[test]
fn what_is_found_comes_through_the_pipe() {
    let result = one(LONG, |wanted, tell| {
        tell("open");
        DeviceProbe { device: wanted.device.clone(), ..DeviceProbe::default() }
    });
    assert!(matches!(result, ProbeResult::Done(probe) if probe.device == "none_0"));
}

#[test]
fn a_crash_is_named_with_the_step() {
    let result = one(LONG, |_, tell| {
        tell("ibv_open_device");
        // Not a fault: the test harness catches those.
        std::process::abort()
    });
    let during = Some("ibv_open_device".to_owned());
    assert_eq!(result, ProbeResult::Crashed { signal: "SIGABRT".into(), during });
}

#[test]
fn a_hang_is_killed_and_the_others_go_on() {
    let ports = [wanted(), Wanted { port: 2, ..wanted() }];
    let results = run(&ports, Duration::from_millis(300), LONG, |wanted, tell| {
        tell("ibv_reg_mr");
        if wanted.port == 1 {
            let _ = signals::kill(Pid::this(), libc::SIGSTOP);
        }
        DeviceProbe { port: wanted.port, ..DeviceProbe::default() }
    });
    let ProbeResult::Hung { after_ms, during, gone: true } = &results[0] else { panic!("{results:?}") };
    assert!((300..5000).contains(after_ms), "{after_ms}");
    assert_eq!(during.as_deref(), Some("ibv_reg_mr"));
    assert!(matches!(&results[1], ProbeResult::Done(probe) if probe.port == 2));
}

#[test]
fn too_much_and_too_little_is_no_result() {
    let flood = one(LONG, |_, tell| {
        loop {
            tell(&"x".repeat(5000));
        }
    });
    assert!(matches!(flood, ProbeResult::Garbled { .. }), "{flood:?}");
    let cut = one(LONG, |_, tell| {
        tell("ibv_reg_mr");
        crate::sys::fork::exit_now(7)
    });
    assert_eq!(cut, ProbeResult::Exited { code: 7, during: Some("ibv_reg_mr".into()) });
}
