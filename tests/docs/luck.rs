//! Tests that no test relies on luck. A fixed sleep is too short on a busy machine, and an upper bound on elapsed
//! time fails there. Tests wait for an event, and prove what a program does not wait for by the order of two events.
//! A program that the test process itself writes can be busy (ETXTBSY): see tests/support/executable.rs.
//! Exempt are the measurements in tests/bench.

use std::fs;
use std::path::Path;

use crate::support::repository;

/// A line of a test that sleeps or compares elapsed time: its file, a part of the line, and why it needs no luck.
type Exception = (&'static str, &'static str, &'static str);

const MOMENT: &str = "the moment of a signal is what is tried";

const EXCEPTIONS: &[Exception] = &[
    ("src/watch/job/tests.rs", "from_millis(1)", "a pause between two looks"),
    ("tests/support/mod.rs", "sleep(pause)", "the pause between two looks of poll_until"),
    ("tests/support/running.rs", "ends_within(Duration::from_secs(1)) &&", "a pause between two looks"),
    ("tests/docker/setup.sh", "sleep 0.1", "a pause between two looks"),
    ("tests/examples/metrics.py", "sleep(0.2)", "a pause between two looks"),
    ("tests/launchers/driver.py", "sleep(0.05)", "a pause between two looks"),
    ("tests/launchers/worker.py", "sleep(0.02)", "a pause between two steps"),
    ("tests/launchers/worker.py", "sleep(3)", "the worker saves for so long"),
    ("tests/docker/stop.rs", "sleep 2; echo saved", "the worker saves for so long"),
    ("tests/docker/lifecycle.rs", "sleep 0 &", "a process that ends at once"),
    ("tests/vm/lib.sh", "sleep \"${await_pauses", "a pause between two looks"),
    ("tests/vm/guest/nixl.py", "sleep(0.01)", "a pause between two looks"),
    ("tests/vm/guest/traffic.sh", "sleep 0.1", "a pause between two looks"),
    ("tests/vm/guest/watch_sound.sh", "sleep 1", "a pause between two looks"),
    ("tests/init/clock.rs", "sleep 20000", "what the clock lets pass"),
    ("tests/init/clock.rs", "sleep {pause}", "what the clock lets pass"),
    ("tests/init/clock.rs", "sleep 30;", "what the clock lets pass"),
    ("tests/support/clock.rs", "sleep(time)", "where no program can be traced, the time has to pass"),
    (
        "tests/init/stop.rs",
        "from_millis(100)",
        "time for a wrong end to show: a sound program passes on any machine",
    ),
    ("tests/init/end.rs", "sleep(Duration::from_micros(microseconds))", MOMENT),
    ("tests/init/inherited.rs", "sleep 0.03; exit 5", "processes that end one after the other"),
    (
        "tests/init/job.rs",
        "from_millis(20)",
        "a pause between two steps of a counter that rises all the time",
    ),
    ("tests/init/job.rs", "elapsed() < Duration", "what took longer is done again"),
    ("tests/init/killed.rs", "exec sleep 0.2", "the command runs for so long"),
    ("tests/init/killed.rs", "sleep(Duration::from_micros(microseconds))", MOMENT),
    ("tests/init/old_kernel.rs", "(sleep 0 &)", "a process that ends at once"),
    ("tests/init/orphans.rs", "sleep 0.1; exit 7", "processes that end one after the other"),
    ("tests/init/soak.rs", "random.u64(", MOMENT),
    ("tests/init/soak.rs", "ends_within(Duration::from_secs(5))", MOMENT),
    ("tests/init/soak.rs", "began.elapsed() < time", "the soak lasts for so long"),
    ("tests/init/stop.rs", "sleep 0.3; echo saved", "the command saves for so long"),
    ("tests/init/stop.rs", "sleep 0.5; echo saved", "the worker saves for so long"),
    ("tests/init/stop.rs", "sleep 0.01; setsid", "processes that start all the time"),
    ("tests/init/watcher/on_finding.rs", "sleep 0.1; :", "a process that is left behind"),
    ("tests/init/watcher/on_finding.rs", "sleep 0.1; echo", "the command runs for so long"),
];

const ADVICE: &str = "Wait for an event, with poll_until or by reading. Prove that a program does not wait for something \
                      by an event, too: it goes on although that never happens, or it logs what it waited for. \
                      Copy the program with copy_of_binary";

#[test]
fn no_test_sleeps_for_a_fixed_time_or_bounds_elapsed_time() {
    let found = lines();
    let is = |(file, line): &(String, String), (of, part, _): &Exception| file == of && line.contains(part);
    let unknown = found.iter().filter(|one| !EXCEPTIONS.iter().any(|exception| is(one, exception)));
    let unknown: Vec<String> = unknown.map(|(file, line)| format!("{file}: {line}")).collect();
    assert!(unknown.is_empty(), "{ADVICE}:\n{}", unknown.join("\n"));
    let gone: Vec<_> =
        EXCEPTIONS.iter().filter(|exception| !found.iter().any(|one| is(one, exception))).collect();
    assert!(gone.is_empty(), "these exceptions match no line: {gone:#?}");
    assert!(EXCEPTIONS.iter().all(|(.., why)| !why.is_empty()));
}

/// Returns the lines of all tests that sleep or compare elapsed time, each with its file.
fn lines() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for directory in ["tests", "src"] {
        below(&repository(directory), &mut |file| {
            let name = file.strip_prefix(repository("")).unwrap().display().to_string();
            let text = fs::read_to_string(file).unwrap();
            let lines = test_code(&name, &text).lines().map(str::trim).filter(|line| relies_on_luck(line));
            found.extend(lines.map(|line| (name.clone(), line.to_owned())));
        });
    }
    found
}

fn below(directory: &Path, read: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_source =
            path.extension().is_some_and(|kind| ["rs", "sh", "py", "c"].iter().any(|one| kind == *one));
        if path.is_dir() {
            below(&path, read);
        } else if is_source {
            read(&path);
        }
    }
}

/// Returns the part of a file that is a test: in `src`, that is a file or a module called `tests`.
fn test_code<'a>(name: &str, text: &'a str) -> &'a str {
    let is_all = name.starts_with("tests/") || name.contains("/tests/") || name.ends_with("/tests.rs");
    match is_all {
        // This file has the patterns themselves.
        true if name.starts_with("tests/bench/") || name == "tests/docs/luck.rs" => "",
        true => text,
        false => text.split_once("#[cfg(test)]\nmod tests {").map_or("", |(_, tests)| tests),
    }
}

/// Returns whether a line sleeps for a fixed time, compares elapsed time with an upper bound, or writes the program to
/// run. A command that sleeps until it is killed does not, nor does a loop with a pause, nor a lower bound, which holds on
/// a busy machine, too.
fn relies_on_luck(line: &str) -> bool {
    if ["//", "#"].iter().any(|comment| line.starts_with(comment)) {
        return false;
    }
    let line = line.replace("sleep 1000", "").replace("sleep inf", "");
    let is_call = |(before, _): (&str, &str)| !before.ends_with('.') || before.ends_with("time.");
    let calls = ["sleep(", "usleep(", "nanosleep("].iter().any(|call| places(&line, call).any(is_call));
    let is_command = |(before, after): (&str, &str)| {
        let rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let pauses = after.starts_with("0.") && (rest.starts_with("; done") || before.ends_with("while "));
        !pauses && after.starts_with(|first: char| first.is_ascii_digit() || "$\"{".contains(first))
    };
    let is_bound = |(_, after): (&str, &str)| {
        let is_lower = line.starts_with("assert!(") && after.starts_with(" >=");
        after.starts_with(" <") || after.starts_with(" >") && !is_lower
    };
    calls
        || places(&line, "sleep ").any(is_command)
        || ["elapsed()", "took"].iter().any(|time| places(&line, time).any(is_bound))
        || line.contains('!') && line.contains(".ends_within(Duration::")
        || line.contains("fs::copy(binary()")
}

/// Returns what is before and after each place of a word in a line.
fn places<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let places = line.match_indices(word).map(move |(at, _)| (&line[..at], &line[at + word.len()..]));
    places.filter(|(before, _)| !before.ends_with(|last: char| last.is_alphanumeric() || last == '_'))
}

#[test]
fn sleeps_and_bounds_are_seen_and_pauses_are_not() {
    for line in [
        "std::thread::sleep(Duration::from_millis(50));",
        "sleep(Duration::from_millis(50));",
        "time.sleep(3)",
        "nanosleep(&time, 0);",
        "sleep 0.5",
        "trap 'sleep 2; exit' TERM",
        "until [ -e x ]; do sleep 1; done",
        "assert!(start.elapsed() < Duration::from_secs(20));",
        "if start.elapsed() > LIMIT {",
        "assert!(took >= LEAST && took < DEADLINE, \"{took:?}\");",
        "assert!(!running.ends_within(Duration::from_millis(600)));",
        "fs::copy(binary(), &path).unwrap();",
    ] {
        assert!(relies_on_luck(line), "{line}");
    }
    for line in [
        "exec sleep 1000",
        "until [ -e x ]; do sleep 0.02; done",
        "while sleep 0.02; ! [ -e x ]; do :; done",
        "// It would sleep 3 s.",
        "job.sleep(until, &[]);",
        "assert!(took >= LEAST, \"{took:?}\");",
        "assert!(!running.ends_within(DEADLINE));",
        "for command in [\"sh\", \"sleep\", \"tr\"] {",
    ] {
        assert!(!relies_on_luck(line), "{line}");
    }
}
