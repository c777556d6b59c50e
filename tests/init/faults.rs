//! Makes each system call of a start fail, one in each start, with the errors that its manual page lists.
//! Either the command starts, or the program refuses with a sentence and one of its codes. It never hangs
//! or crashes, and each file that it leaves is complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::libc;

use super::container::{self, FILES};
use crate::support::DEADLINE;
use crate::support::faults::{Place, call_of, fail};
use crate::support::running::{Ended, filtered};

/// Starts the program in a container with this root, as PID 1 or in place, and waits for its end.
///
/// Each call waits for a thread of this test. `is_waited_for`: whether PID 1 waits for all of the time of the preparation.
fn start(
    root: &Path,
    is_pid_1: bool,
    fails: Option<(Place, i32)>,
    is_waited_for: bool,
) -> (Ended, Vec<Place>) {
    let script = "echo \"ran ${NCCL_IB_HCA:-without} ${T_X:-unprepared}\"; exit 7";
    let arguments = ["--set", "T_X=prepared", "--", "/opt/sh", "-c", script];
    let mut command = container::command(root, is_pid_1, "chroot", &arguments);
    command.env("RDMA_INIT_PROPAGATE", "profile,environment,ssh").env("MASTER_ADDR", "127.0.0.1");
    command.env("RDMA_INIT_PREPARE_TIMEOUT", if is_waited_for { "10s" } else { "10m" });
    let (filter, seen) = fail(&container::program(), fails);
    let mut running = filtered(command, is_pid_1, filter);
    if !running.ends_within(DEADLINE) {
        running.kill(libc::SIGKILL);
    }
    let ended = running.end();
    (ended, seen.recv_timeout(DEADLINE).expect("no process has the filter any more"))
}

/// The last lines of the files after a start: those that it writes, or what was there before.
struct Whole(Vec<(PathBuf, Option<String>)>);

/// Returns all files below a directory, with their paths from it.
fn files(root: &Path, below: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(root.join(below)) else { return found };
    for entry in entries.flatten() {
        let path = format!("{below}/{}", entry.file_name().to_string_lossy());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(root, &path)),
            false => found.push(path.into()),
        }
    }
    found
}

fn all_files(root: &Path) -> Vec<PathBuf> {
    ["etc", "run", "root", "tmp"].iter().flat_map(|below| files(root, below)).collect()
}

impl Whole {
    /// Reads the files after a start without a fault.
    fn of(root: &Path) -> Whole {
        let last = |path: &PathBuf| last_line(&fs::read(root.join(path)).unwrap());
        Whole(all_files(root).into_iter().map(|path| (path.clone(), last(&path))).collect())
    }

    /// Returns what is wrong with the files after a start.
    fn wrong(&self, root: &Path) -> Vec<String> {
        let mut wrong = Vec::new();
        for path in all_files(root) {
            let Some((_, last)) = self.0.iter().find(|(known, _)| *known == as_usual(&path)) else {
                wrong.push(format!("there is {}", path.display()));
                continue;
            };
            let bytes = fs::read(root.join(&path)).unwrap();
            let is_first =
                FILES.iter().any(|(name, text)| Path::new(name) == path && text.as_bytes() == bytes);
            let is_whole = match path.extension().is_some_and(|extension| extension == "json") {
                true => serde_json::from_slice::<serde_json::Value>(&bytes).is_ok(),
                false => last_line(&bytes) == *last,
            };
            if !is_whole && !is_first {
                wrong.push(format!("{} is not whole: {:?}", path.display(), String::from_utf8_lossy(&bytes)));
            }
        }
        let state = root.join("run/rdma-init");
        if state.join("plan.json").exists() {
            for name in ["env.sh", "nccl.conf", "facts.json"] {
                if !state.join(name).exists() {
                    wrong.push(format!("there is plan.json, and no {name}"));
                }
            }
        }
        wrong
    }
}

/// Returns where a file usually is: a start that cannot use `/run` saves its state in `/tmp`.
fn as_usual(path: &Path) -> PathBuf {
    let of_state = path.strip_prefix("tmp").ok().and_then(|path| path.to_str()?.strip_prefix("rdma-init-0"));
    let name = of_state.and_then(|state| Path::new(state).file_name());
    name.map_or_else(|| path.to_owned(), |name| Path::new("run/rdma-init").join(name))
}

fn last_line(bytes: &[u8]) -> Option<String> {
    // Variables are sorted by name, and one may be missing, so the last line may be any variable.
    let line = String::from_utf8_lossy(bytes).lines().last()?.to_owned();
    let is_variable = line.contains('=');
    Some(if is_variable { "a variable".to_owned() } else { line })
}

/// Returns what is wrong with a start in which a call failed.
fn wrong(ended: &Ended, root: &Path, whole: &Whole, may_be_late: bool) -> Vec<String> {
    let mut wrong = whole.wrong(root);
    let has_run = ended.stdout.starts_with("ran ") && ended.stdout.lines().count() == 1;
    match ended.status.code() {
        Some(7) if has_run => {}
        Some(125..=127) if ended.stdout.is_empty() && ended.stderr.contains("rdma-init: ") => {}
        _ => wrong.push("neither a start nor a refusal".to_owned()),
    }
    for word in ["panicked", "a bug in", "prepare-timeout"] {
        if ended.stderr.contains(word) && !(may_be_late && word == "prepare-timeout") {
            wrong.push(format!("it says {word:?}"));
        }
    }
    // The command and processes that enter get the same values, unless there is no room for the command's.
    let has_room = !ended.stderr.contains("the environment has no room for the variables");
    if let Ok(plan) = fs::read(root.join("run/rdma-init/plan.json")) {
        let plan: serde_json::Value = serde_json::from_slice(&plan).unwrap_or_default();
        let filled = plan["run"]["filled"]["NCCL_IB_HCA"].as_str();
        let wanted = filled.filter(|_| has_room).unwrap_or("without");
        if has_run && wanted != ended.stdout.split(' ').nth(1).unwrap_or_default() {
            wrong.push(format!("the state says {filled:?}"));
        }
    }
    wrong
}

/// Starts the program once for each fault, and expects that nothing is wrong. Returns how many starts were
/// refused.
#[track_caller]
fn expect_all_well(is_pid_1: bool, choose: impl Fn(&[Place]) -> Vec<(Place, i32)>) {
    let root = container::root();
    let (ended, places) = start(root.path(), is_pid_1, None, false);
    assert_eq!(ended.stdout, "ran =mlx5_0 prepared\n", "{ended:#?}");
    let whole = Whole::of(root.path());
    assert!(whole.0.len() > 10, "{:?}", all_files(root.path()));
    let faults: Vec<(Place, i32)> =
        choose(&places).into_iter().filter(|(place, _)| !is_before_main(*place)).collect();
    let (next, refused, found) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((place, errno)) = faults.get(number) else { return };
                    if number > 0 && number % 500 == 0 {
                        println!("{number} of {} faults", faults.len());
                    }
                    let root = container::root();
                    let is_permit = is_permit(*place, &places);
                    let (ended, _) = start(root.path(), is_pid_1, Some((*place, *errno)), is_permit);
                    refused.fetch_add(usize::from(ended.status.code() != Some(7)), Ordering::Relaxed);
                    let wrong = wrong(&ended, root.path(), &whole, is_permit);
                    if !wrong.is_empty() {
                        let (_, name, _) = call_of(*place);
                        let error = nix::errno::Errno::from_raw(*errno);
                        found.lock().unwrap().push(format!(
                            "{name} number {} of process {}: {error:?}: {}\n{ended:#?}",
                            place.nth,
                            place.process,
                            wrong.join("; ")
                        ));
                    }
                }
            });
        }
    });
    let (count, refused) = (faults.len(), refused.into_inner());
    println!("{} calls, {count} faults, {refused} starts refused", places.len());
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{} of {count}:\n{}", found.len(), found.join("\n"));
    assert!(count > 50, "{count}");
}

/// Returns whether the C library makes the call before the program begins: it protects its own memory, or
/// ends the process.
fn is_before_main(place: Place) -> bool {
    (place.process, place.call, place.nth) == (0, libc::SYS_mprotect, 0)
}

/// Returns whether the preparation asks here whether it may continue. If it cannot read the answer, PID 1
/// starts the command when the preparation timeout expires.
fn is_permit(place: Place, places: &[Place]) -> bool {
    place.process == 1 && place.call == libc::SYS_read && is_last(place, places)
}

fn is_last(place: Place, places: &[Place]) -> bool {
    let is_later = |other: &Place| Place { nth: place.nth, ..*other } == place && other.nth > place.nth;
    !places.iter().any(is_later)
}

/// Returns the first and the last call of each kind in each process, with the most likely error.
fn some(places: &[Place]) -> Vec<(Place, i32)> {
    let is_edge = |place: &&Place| place.nth == 0 || is_last(**place, places);
    places.iter().filter(is_edge).map(|place| (*place, call_of(*place).2[0])).collect()
}

/// Returns each call with each of its errors.
fn all(places: &[Place]) -> Vec<(Place, i32)> {
    let errors = |place: Place| call_of(place).2.iter().map(move |errno| (place, *errno));
    places.iter().copied().flat_map(errors).collect()
}

/// A machine that crashes must not lose the lines of others. A file of ours alone is not worth the time.
#[test]
fn a_file_with_lines_of_others_is_on_the_disk_before_it_gets_its_name() {
    let synced = |root: &Path| {
        let (ended, places) = start(root, true, None, false);
        assert_eq!(ended.stdout, "ran =mlx5_0 prepared\n", "{ended:#?}");
        places.iter().filter(|place| place.call == libc::SYS_fsync).count()
    };
    let amended = ["etc/nccl.conf", "etc/environment", "root/.ssh/environment"];
    let root = container::root();
    assert_eq!(synced(root.path()), amended.len());
    let root = container::root();
    amended.iter().for_each(|name| fs::remove_file(root.path().join(name)).unwrap());
    assert_eq!(synced(root.path()), 0);
    let whole = amended.map(|name| fs::read_to_string(root.path().join(name)).unwrap());
    for (name, whole) in std::iter::zip(amended, &whole) {
        fs::write(root.path().join(name), whole.replace("mlx5_0", "mlx5_9")).unwrap();
    }
    assert_eq!(synced(root.path()), 0);
    assert_eq!(amended.map(|name| fs::read_to_string(root.path().join(name)).unwrap()), whole);
}

#[test]
fn a_call_that_fails_keeps_no_command_from_its_start() {
    expect_all_well(true, some);
}

#[test]
fn a_call_that_fails_in_place_keeps_no_command_from_its_start() {
    expect_all_well(false, some);
}

#[test]
#[ignore = "each call with each error, for minutes: cargo test --test suite -- --ignored init::faults::"]
fn every_call_may_fail_with_every_error() {
    expect_all_well(true, all);
}

#[test]
#[ignore = "each call with each error, for minutes: cargo test --test suite -- --ignored init::faults::"]
fn every_call_may_fail_with_every_error_in_place() {
    expect_all_well(false, all);
}
