//! What a launcher says of processes that have left no report. Pure.

use memchr::memmem;

/// How srun begins what it says of a task that has ended badly: `srun: error: node5: task 4:
/// Exited with exit code 125`.
const SRUN: &[u8] = b"srun: error: ";

/// How a self-test ends in which a check failed. It has left its report.
const CHECK_FAILED: &str = "Exited with exit code 1";

/// What srun says in this line of a task that ended otherwise than a self-test does.
pub fn failure(line: &[u8]) -> Option<String> {
    let start = memmem::find(line, SRUN)? + SRUN.len();
    let said = String::from_utf8_lossy(&line[start..]);
    let (_, tasks) = said.split_once(": task")?;
    let (_, how) = tasks.split_once(": ")?;
    (how.trim_end() != CHECK_FAILED).then(|| said.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_end_without_a_report_are_told_of() {
        for (line, said) in [
            ("srun: error: node5: task 4: Exited with exit code 125", true),
            ("2026-11-21T09:00:00 srun: error: node[5-6]: tasks 4-5: Exited with exit code 137\r", true),
            ("srun: error: node5: task 4: Killed", true),
            ("srun: error: node5: task 4: Segmentation fault (core dumped)", true),
            ("srun: error: node[5-6]: tasks 4-5: Exited with exit code 1", false),
            ("srun: error: Not using a pseudo-terminal, disregarding --pty option", false),
            ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", false),
            ("srun: error: ", false),
            ("node5: task 4: Killed", false),
        ] {
            let expected = line.split_once("error: ").filter(|_| said).map(|(_, said)| said.trim_end());
            assert_eq!(failure(line.as_bytes()).as_deref(), expected, "{line}");
        }
        assert_eq!(failure(b"srun: error: \xff: task 1: Killed").unwrap(), "\u{fffd}: task 1: Killed");
    }
}
