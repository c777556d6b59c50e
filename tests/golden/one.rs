//! Compares the program's output for one golden host with the files in the host's directory.

use std::fs;
use std::path::Path;

use crate::support::golden::Host;
use crate::support::{process, repository};

/// The files that a golden host's directory may contain. Any other name is a typo, because no test reads
/// that file.
const FILES: &[&str] = &[
    "about.txt",
    "checks.txt",
    "config.toml",
    "differs.json",
    "environment",
    "expected.env",
    "facts.json",
    "plan.txt",
    "profiles",
];

/// Checks one golden host.
///
/// # Errors
/// A list of everything that is wrong, with what was expected and what was found.
pub fn comes_out_as_written(host: &Host) -> Result<(), String> {
    let mut wrong = unknown_files(host);
    wrong.extend(variables(host));
    let plan = masked(&run(host, &["plan", "--evidence"], &[0]));
    wrong.extend(compare(&host.folder.join("plan.txt"), &plan));
    let checks = run(host, &["self-test"], &[0, 1]);
    wrong.extend(compare(&host.folder.join("checks.txt"), &outcome(&masked(&checks))));
    let about = fs::read_to_string(host.folder.join("about.txt")).unwrap_or_default();
    if about.trim().is_empty() {
        wrong.push(format!("{} has no about.txt", host.folder.display()));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{}\nThe facts are in {}.", wrong.join("\n\n"), host.facts().display())),
    }
}

fn unknown_files(host: &Host) -> Vec<String> {
    let names = fs::read_dir(&host.folder).unwrap().map(|entry| entry.unwrap().file_name());
    let unknown = names.filter(|name| !FILES.iter().any(|known| name == known));
    unknown.map(|name| format!("no test reads {}", host.folder.join(name).display())).collect()
}

/// Compares the variables with `expected.env`, which is written by hand and names exactly those
/// that must be set.
fn variables(host: &Host) -> Option<String> {
    let file = host.folder.join("expected.env");
    let expected = match fs::read_to_string(&file) {
        Ok(expected) => expected,
        Err(error) => return Some(format!("{}: {error}", file.display())),
    };
    let found = run(host, &["env", "--format", "docker"], &[0]);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    let (wanted, found) = (sorted(&expected), sorted(&found));
    (wanted != found).then(|| format!("The variables differ.\n--- wanted\n{wanted}\n--- found\n{found}"))
}

/// Runs a command of the program with only the environment of the host. Panics unless it ends with one of
/// these exit codes.
pub fn run(host: &Host, arguments: &[&str], codes: &[i32]) -> String {
    let facts = host.facts();
    let mut command = process::rdma_init(arguments);
    command.arg("--facts").arg(facts).current_dir(repository(""));
    command.env_clear().envs(host.environment().iter().filter_map(|line| line.split_once('=')));
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let ended = output.status.code().is_some_and(|code| codes.contains(&code));
    assert!(ended, "{} {arguments:?}: {}, {stderr}", host.name, output.status);
    // The path of the facts is that of this machine, so it is replaced.
    String::from_utf8(output.stdout).unwrap().replace(facts.to_str().unwrap(), "facts.json")
}

/// Replaces the version in the title, because it changes with each release.
fn masked(report: &str) -> String {
    let title = concat!("rdma-init ", env!("CARGO_PKG_VERSION"));
    report.strip_prefix(title).map_or_else(|| panic!("{report}"), |rest| format!("rdma-init VERSION{rest}"))
}

/// Keeps the part of a self-test's output that is the same in each run. Checks that do not apply are
/// omitted as well, so that a new check changes only the hosts for which it has a result.
fn outcome(report: &str) -> String {
    let mut lines = report.lines();
    let (title, counted) = lines.next().and_then(|line| line.rsplit_once(" (")).expect("a title");
    let (_, ports) = counted.split_once(" on ").expect("how many ports");
    let (ports, _) = ports.rsplit_once(", ").expect("how long it took");
    let mut text = format!("{title} ({ports})\n");
    for line in lines.filter(|line| !line.starts_with("  skipped")) {
        text.push_str(narrow(line).trim_end());
        text.push('\n');
    }
    text
}

/// Returns a row of the table with two spaces after the name, so that a longer name elsewhere changes
/// nothing here. These checks show no times.
fn narrow(row: &str) -> String {
    let is_check = ["  ok  ", "  warning  ", "  FAILED  "].iter().any(|word| row.starts_with(word));
    let Some((word, rest)) = row.split_at_checked(WORD).filter(|_| is_check) else { return row.to_owned() };
    match rest.split_once("  ") {
        Some((name, evidence)) => format!("{word}{name}  {}", evidence.trim_start()),
        None => row.to_owned(),
    }
}

/// The width of the column with the first word of a row.
const WORD: usize = 11;

/// Compares a file with what was found, or writes the file if `UPDATE_CASES` is set.
fn compare(file: &Path, found: &str) -> Option<String> {
    if std::env::var_os("UPDATE_CASES").is_some() {
        fs::write(file, found).unwrap();
    }
    let wanted = fs::read_to_string(file).unwrap_or_default();
    (wanted != found).then(|| format!("{} differs.\n--- wanted\n{wanted}--- found\n{found}", file.display()))
}
