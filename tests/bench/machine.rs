//! Describes the machine on which a benchmark ran.

use std::fs;
use std::process::Command;

/// Returns the title, the processors, the kernel, and the programs that were measured.
pub fn machine(title: &str, programs: &str) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cpus = cpu.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "# {title}\n\n{} CPUs, {}; Linux {}; {programs}. Load before: {}; {}.\n",
        cpus,
        model.trim_start_matches(['\t', ' ', ':']),
        output(Command::new("uname").arg("-r")),
        load(),
        commit(),
    )
}

/// Returns the load of the last minute: a run on a busy machine is not worth keeping.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Returns the measured commit, as far as git knows it.
fn commit() -> String {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments));
    match git(&["rev-parse", "--short", "HEAD"]).as_str() {
        "" => "no commit".to_owned(),
        commit if git(&["status", "--porcelain", "--untracked-files=no"]).is_empty() => {
            format!("commit {commit}")
        }
        commit => format!("commit {commit} with changes"),
    }
}

/// Returns what a program writes to standard output.
pub fn output(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
