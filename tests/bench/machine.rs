//! On what a benchmark was run.

use std::fs;
use std::process::Command;

/// The title, the processors and the kernel, and the programs that were measured.
pub fn machine(title: &str, programs: &str) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cpus = cpu.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "# {title}\n\n{} CPUs, {}; Linux {}; {programs}.\n",
        cpus,
        model.trim_start_matches(['\t', ' ', ':']),
        output(Command::new("uname").arg("-r")),
    )
}

/// What a program writes to standard output.
pub fn output(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
