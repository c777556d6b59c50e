use nix::libc;
use nix::unistd::Pid;

use super::message::Message;
use super::*;
use crate::verbs::port_test::ProbeEnd;
use crate::verbs::port_test::{DEFAULT_SIZE, Marks};
use crate::verbs::step::Step;
use crate::verbs::talk::End;

/// No test waits for it: on a busy machine, a process may not run for many seconds.
const LONG: Duration = Duration::from_secs(600);

fn wanted() -> PortTest {
    PortTest {
        device: "none_0".into(),
        port: 1,
        gid_index: None,
        size: DEFAULT_SIZE,
        each: LONG,
        allowed_mtu: None,
        marks: Marks::default(),
        driver: None,
        cma_outside_areas: None,
    }
}

fn one(each: Duration, work: Work) -> ProbeResult {
    run(&[wanted()], each, LONG, work).remove(0)
}

#[test]
fn what_is_found_comes_through_the_pipe() {
    let result = one(LONG, |wanted, talk| {
        talk.step(Step::OpenNode);
        DeviceProbe { device: wanted.device.clone(), ..DeviceProbe::default() }
    });
    assert!(matches!(result, Ok(probe) if probe.device == "none_0"));
}

#[test]
fn a_crash_is_named_with_the_step() {
    let result = one(LONG, |_, talk| {
        talk.step(Step::OpenDevice);
        // This is an abort, not a memory fault, because the test harness catches those.
        std::process::abort()
    });
    let during = Some(Step::OpenDevice);
    assert_eq!(result, Err(ProbeEnd::Crashed { signal: "SIGABRT".into(), during }));
}

#[test]
fn a_hang_is_killed_and_the_others_go_on() {
    let ports = [wanted(), PortTest { port: 2, ..wanted() }];
    let results = run(&ports, Duration::from_secs(20), LONG, |wanted, talk| {
        talk.step(Step::Register);
        if wanted.port == 1 {
            let _ = signals::kill(Pid::this(), libc::SIGSTOP);
        }
        DeviceProbe { port: wanted.port, ..DeviceProbe::default() }
    });
    let Err(ProbeEnd::Hung { after_ms, during, gone: true }) = &results[0] else { panic!("{results:?}") };
    assert!(*after_ms >= 20_000, "{after_ms}");
    assert_eq!(*during, Some(Step::Register));
    assert!(matches!(&results[1], Ok(probe) if probe.port == 2));
}

#[test]
fn too_much_and_too_little_is_no_result() {
    let flood = one(LONG, |_, talk| {
        loop {
            talk.step(Step::Register);
        }
    });
    assert!(matches!(flood, Err(ProbeEnd::Garbled { .. })), "{flood:?}");
    let cut = one(LONG, |_, talk| {
        talk.step(Step::Register);
        crate::sys::fork::exit_now(7)
    });
    assert_eq!(cut, Err(ProbeEnd::Exited { code: 7, during: Some(Step::Register) }));
}

#[test]
fn a_child_waits_for_what_it_is_told() {
    let work: Work = |wanted, talk| {
        let own = End { number: u32::from(wanted.port), ..end() };
        let far = talk.exchange(own);
        DeviceProbe {
            registered: far.map_or(0, |far| far.size),
            verified: talk.meet(),
            ..DeviceProbe::default()
        }
    };
    let ports = [1, 2, 3].map(|port| PortTest { port, ..wanted() });
    let mut children = Children::start(&ports, LONG, work);
    children.until(LONG, |told| told.end().is_some());
    let numbers = children.list().iter().map(|child| child.told().unwrap().end().unwrap().number);
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3]);
    for (child, far) in children.list().iter_mut().zip([Some(7), Some(8), None]) {
        let message = far.map(|size| Message::End(End { size, ..end() }));
        child.answer(message.as_ref());
    }
    children.until(LONG, ChildReport::is_ready);
    for (child, message) in children.list().iter_mut().zip([Some(Message::Ready), None, None]) {
        child.answer(message.as_ref());
    }
    children.until(LONG, |_| false);
    let found = children.finish().into_iter().map(|result| match result {
        Ok(probe) => (probe.registered, probe.verified),
        other => panic!("{other:?}"),
    });
    assert_eq!(found.collect::<Vec<_>>(), [(7, true), (8, false), (0, false)]);
}

fn end() -> End {
    End { number: 0, lid: 0, gid: None, mtu: 1024, address: 0, key: 0, size: 0 }
}
