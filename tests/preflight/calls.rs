//! Makes system calls of one of two nodes fail, one in each job: neither node hangs or crashes, and each
//! reports a verdict or why it has none.

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use super::job::{Ended as OtherEnded, Job};
use crate::support::faults::{Place, call_of, fail};
use crate::support::running::{Ended, filtered};
use crate::support::{DEADLINE, binary};

/// Longer than a node needs to try everything again.
const LONGEST: Duration = Duration::from_secs(90);

fn run(node: u32, fails: Option<(Place, i32)>) -> (Ended, OtherEnded, Vec<Place>) {
    let job = Job::of(2);
    let options = ["--wait", "3s"];
    let mut command = job.command(node, &options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (filter, seen) = fail(&binary(), fails);
    let mut own = filtered(command, false, filter);
    let other = job.start(1 - node, &options);
    if !own.ends_within(LONGEST) {
        own.kill(libc::SIGKILL);
    }
    (own.end(), other.end(), seen.recv_timeout(DEADLINE).expect("no process has the filter any more"))
}

/// Runs a job for each first call of its kind in each process, and for each of these errors of the call.
#[track_caller]
fn expect_all_well(errors: impl Fn(&Place) -> Vec<i32>) {
    for node in [0, 1] {
        let (own, other, places) = run(node, None);
        assert_eq!((own.status.code(), other.code), (Some(0), Some(0)), "{own:#?} {other:#?}");
        let firsts = places.iter().filter(|place| place.nth == 0);
        // If the C library cannot protect its memory before the start, it ends the program.
        let firsts = firsts.filter(|place| place.call != libc::SYS_mprotect);
        let faults: Vec<(Place, i32)> =
            firsts.flat_map(|place| errors(place).into_iter().map(|errno| (*place, errno))).collect();
        let (next, passed, found) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some((place, errno)) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let (_, name, _) = call_of(*place);
                        let (own, other, _) = run(node, Some((*place, *errno)));
                        let codes = [own.status.code(), other.code];
                        passed.fetch_add(usize::from(codes == [Some(0); 2]), Ordering::Relaxed);
                        let said = format!("{}{}", own.stdout, own.stderr);
                        let is_well = codes.iter().all(|code| [Some(0), Some(1), Some(125)].contains(code))
                            && (said.contains("preflight") || said.starts_with("rdma-init: "))
                            && ![&said, &other.said()].iter().any(|said| said.contains("panicked"));
                        if !is_well {
                            let error = Errno::from_raw(*errno);
                            let fault =
                                format!("{name} of process {} of node {node}: {error:?}", place.process);
                            found.lock().unwrap().push(format!("{fault}: {own:#?} {other:#?}"));
                        }
                    }
                });
            }
        });
        let found = found.into_inner().unwrap();
        println!("node {node}: {} faults, {} jobs passed", faults.len(), passed.into_inner());
        assert!(found.is_empty(), "{} of {}:\n{}", found.len(), faults.len(), found.join("\n"));
    }
}

#[test]
#[ignore = "a job for each kind of call, for minutes: cargo test --test suite -- --ignored preflight::calls::"]
fn a_call_that_fails_makes_no_node_hang_or_crash() {
    expect_all_well(|place| call_of(*place).2.iter().take(1).copied().collect());
}

#[test]
#[ignore = "a job for each kind of call and each of its errors, for an hour: cargo test --test suite -- --ignored preflight::calls::"]
fn a_call_may_fail_with_every_error() {
    expect_all_well(|place| call_of(*place).2.to_vec());
}
