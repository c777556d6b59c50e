//! Starts and stops the program repeatedly, with commands of all kinds and signals at any moment.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use nix::libc;

use crate::support::running::{
    Running, as_pid_1, children, descendants, descriptors, has_descriptors, in_place, lives, rdma_init,
    signal_of, status,
};
use crate::support::{poll_until, status_field};

/// How long to run, such as `10m`.
const TIME: &str = "RDMA_INIT_TEST_SOAK";
/// The seed of a run to repeat.
const SEED: &str = "RDMA_INIT_TEST_SOAK_SEED";

const AT_ONCE: u64 = 4;

/// A command, and the codes that it may end with if no signal is sent; a signal adds its own code.
struct Job {
    script: String,
    codes: Vec<i32>,
    /// Whether it keeps running until it is stopped. Such a command prints "ready" when all its processes
    /// are running.
    stays: bool,
}

fn job(random: &mut Rng) -> Job {
    let code = random.i32(0..=125);
    let ends = |script: String, code| Job { script, codes: vec![code], stays: false };
    let stays = |script: &str, codes: &[i32]| Job {
        script: format!("{script}\necho ready\nwhile :; do sleep 1000 & wait $!; done"),
        codes: codes.to_vec(),
        stays: true,
    };
    match random.u8(0..10) {
        0 => ends(format!("exit {code}"), code),
        1 => {
            let signal = random.choice([libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGUSR1]).unwrap();
            ends(format!("kill -{signal} $$; sleep 1000"), 128 + signal)
        }
        2 => ends(format!("for i in 1 2 3 4 5; do (true &); done; exit {code}"), code),
        3 => ends(
            format!("(sleep 1000 >/dev/null 2>&1 &); (setsid sleep 1000 >/dev/null 2>&1 &); exit {code}"),
            code,
        ),
        4 => ends(format!("sh -c 'sh -c \"exit 3\" & exit 4' & wait; exit {code}"), code),
        5 => ends("exec /no/such/command".to_owned(), 127),
        6 => stays(&format!("trap 'exit {code}' TERM"), &[code]),
        7 => stays("(sleep 1000 & sleep 1000 &)", &[]),
        8 => stays("trap '' HUP; setsid sleep 1000 &", &[]),
        _ => stays(":", &[]),
    }
}

/// The signals that are sent. They end a shell that does not trap them.
const SIGNALS: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1];

#[track_caller]
fn one(random: &mut Rng, state: &Path) {
    let job = job(random);
    let is_pid_1 = random.u8(0..4) > 0;
    let options: &[&str] = if is_pid_1 { &[] } else { &["--supervise", "--drain-timeout", "10ms"] };
    let mut command = rdma_init([options, &["--", "sh", "-c", &job.script]].concat());
    command.env("RDMA_INIT_STATE_DIR", state);
    let mut running = if is_pid_1 { as_pid_1(command) } else { in_place(command) };
    let mut codes = job.codes.clone();
    let sent = random.choice(SIGNALS).unwrap();
    let mut below = Vec::new();
    if job.stays && random.bool() {
        running.wait_for("ready");
        below = at_rest(&running, is_pid_1);
    } else {
        std::thread::sleep(Duration::from_micros(random.u64(0..20_000)));
    }
    if job.stays || random.bool() {
        running.kill(sent);
        codes.push(128 + sent);
    }
    if job.stays {
        // A shell may ignore this signal, or interrupt only the process it is waiting for.
        if !running.ends_within(Duration::from_millis(random.u64(0..50))) {
            running.kill(libc::SIGTERM);
            codes.push(143);
        }
        if !running.ends_within(Duration::from_secs(5)) {
            running.kill(libc::SIGTERM);
        }
    }
    let pid = running.pid;
    let ended = running.end();
    // A process that is not PID 1 and does not supervise yet is killed by the signal itself.
    let code =
        ended.status.code().or(signal_of(ended.status).filter(|_| !is_pid_1).map(|signal| 128 + signal));
    assert!(code.is_some_and(|code| codes.contains(&code)), "{codes:?}: {}: {ended:#?}", job.script);
    assert!(!lives(pid));
    poll_until("the processes below are gone", || below.iter().all(|pid| !lives(*pid)).then_some(()));
    let names = fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let odd: Vec<_> = names.filter(|name| !OURS.contains(&name.as_str()) && !is_recent(name)).collect();
    assert!(odd.is_empty(), "{odd:?}: {}: {ended:#?}", job.script);
}

/// Returns whether this is the temporary name of a file that a start was writing when it was stopped. Later
/// starts remove such files when they are a minute old.
fn is_recent(name: &str) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let made = name.strip_prefix('.').and_then(|name| name.rsplit('.').next()?.parse().ok());
    made.is_some_and(|made| now.saturating_sub(Duration::from_nanos(made)) < Duration::from_secs(120))
}

/// The files of a state. A start that was stopped may leave unfinished ones.
const OURS: [&str; 7] =
    ["env.sh", "nccl.conf", "plan.json", "facts.json", "libnccl-env.so", "nccl-env", "phase.json"];

/// Checks a program whose command is running. Returns the processes below it.
fn at_rest(running: &Running, is_pid_1: bool) -> Vec<i32> {
    let command = running.command();
    has_descriptors(command, &[0, 1, 2]).unwrap();
    running.rests();
    poll_until("the init holds no descriptors but the standard ones and the state", || {
        let held = descriptors(running.pid);
        let others = held.iter().filter(|(_, what)| what != "/memfd:rdma-init-state (deleted)");
        let states = held.len().checked_sub(3)?;
        (others.map(|(number, _)| *number).eq(0..3) && states <= usize::from(is_pid_1)).then_some(())
    });
    poll_until("no zombie is left", || {
        let is_zombie =
            |pid: &i32| status_field(&status(*pid), "State").is_some_and(|state| state.starts_with('Z'));
        (!children(running.pid).iter().any(is_zombie)).then_some(())
    });
    descendants(running.pid)
}

#[test]
#[ignore = "make soak: as long as RDMA_INIT_TEST_SOAK says"]
fn starts_and_stops_leave_nothing_behind() {
    let time = std::env::var(TIME).unwrap_or_else(|_| "1m".to_owned());
    let time = humantime::parse_duration(&time).expect(TIME);
    let seed =
        std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| Rng::new().u64(..));
    println!("{SEED}={seed}");
    let own = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = own();
    let (began, count) = (Instant::now(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for worker in 0..AT_ONCE {
            let count = &count;
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed.wrapping_add(worker));
                let folder = tempfile::tempdir().unwrap();
                let state = folder.path().join("state");
                while began.elapsed() < time {
                    one(&mut random, &state);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} starts in {:?}", count.into_inner(), began.elapsed());
    // The threads that read the outputs end a moment later.
    poll_until("this process has as many descriptors as before", || (own() <= before).then_some(()));
}
