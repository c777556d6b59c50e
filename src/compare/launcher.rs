//! What a launcher reports about a node without a report. Pure.

use memchr::memmem;

/// How srun begins an error (`src/srun` of Slurm).
const SRUN: &[u8] = b"srun: error: ";

/// How a self-test exits if a check failed. Such a self-test has written its report.
const CHECK_FAILED: &str = "Exited with exit code 1";

/// What Open MPI's mpirun, mpiexec, orterun and prterun report about a process that a signal has
/// killed.
const NOTICED: &str = " noticed that process rank ";

/// The text before the node of the second daemon if Open MPI "has lost communication with a remote
/// daemon"; the first daemon is the launcher's own.
const LOST_DAEMON: &[u8] = b"Remote daemon: [";

/// Returns what the launcher reports in this line, if the line names a node whose report may be
/// missing.
///
/// Ignores lines that name no node, or a different node than the one that failed: slurmstepd's `***
/// STEP 1.0 ON node5 CANCELLED AT ... DUE TO NODE FAILURE ***` names the first node of the step,
/// whichever node has failed.
pub(super) fn failure(line: &[u8]) -> Option<String> {
    of_srun(line).or_else(|| of_mpirun(line))
}

fn of_srun(line: &[u8]) -> Option<String> {
    let said = after(line, SRUN)?;
    let is_of_node = said.starts_with("Node failure on ")
        || said.starts_with("Task launch for ") && said.contains(" failed on node ")
        || task_end(&said).is_some_and(|how| how != CHECK_FAILED);
    is_of_node.then(|| format!("srun says \"{said}\""))
}

/// Returns how a task ended: `node5: task 4: Killed`, `node[5-6]: tasks 4-5: Exited with exit code
/// 125`.
fn task_end(said: &str) -> Option<&str> {
    let (_, tasks) = said.split_once(": task")?;
    Some(tasks.split_once(": ")?.1)
}

fn of_mpirun(line: &[u8]) -> Option<String> {
    if let Some(rest) = after(line, LOST_DAEMON) {
        let (_, node) = rest.split_once("] on node ")?;
        return Some(format!("mpirun says that it has lost its daemon on node {node}"));
    }
    memmem::find(line, NOTICED.as_bytes())?;
    let text = String::from_utf8_lossy(line);
    let (before, rest) = text.split_once(NOTICED)?;
    let who = before.split_whitespace().next_back()?;
    // The line may be broken after the node, before it names the signal.
    let (process, node) = rest.split_once(" on node ")?;
    let node = node.split_whitespace().next()?;
    let rank = process.split_whitespace().next()?;
    Some(format!("{who} says that a signal has ended process rank {rank} on node {node}"))
}

/// Returns what follows the mark in the line, without the white space at the end.
fn after(line: &[u8], mark: &[u8]) -> Option<String> {
    let start = memmem::find(line, mark)? + mark.len();
    Some(String::from_utf8_lossy(&line[start..]).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_srun_says_have_failed_are_told_of() {
        for (line, is_told) in [
            ("srun: error: node5: task 4: Exited with exit code 125", true),
            ("2026-11-21T09:00:00 srun: error: node[5-6]: tasks 4-5: Exited with exit code 137\r", true),
            ("srun: error: node5: task 4: Killed", true),
            ("srun: error: node5: task 4: Out Of Memory", true),
            ("srun: error: node5: task 4: Segmentation fault (core dumped)", true),
            ("srun: error: Node failure on node5", true),
            ("srun: error: Task launch for StepId=7.0 failed on node node5: Job credential expired", true),
            ("srun: error: node[5-6]: tasks 4-5: Exited with exit code 1", false),
            ("srun: error: Application launch failed: Job credential expired", false),
            ("srun: error: Not using a pseudo-terminal, disregarding --pty option", false),
            ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", false),
            ("srun: error: ", false),
            ("node5: task 4: Killed", false),
            // This line names the first node, whichever node has failed.
            (
                "slurmstepd: error: *** STEP 7.0 ON node5 CANCELLED AT 2026-11-21T09:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
                false,
            ),
        ] {
            let said = line.split_once("error: ").map_or("", |(_, said)| said.trim_end());
            let expected = is_told.then(|| format!("srun says \"{said}\""));
            assert_eq!(failure(line.as_bytes()), expected, "{line}");
        }
        let broken = failure(b"srun: error: \xff: task 1: Killed").unwrap();
        assert_eq!(broken, "srun says \"\u{fffd}: task 1: Killed\"");
    }

    #[test]
    fn nodes_that_mpirun_says_have_failed_are_told_of() {
        for (line, said) in [
            (
                "mpirun noticed that process rank 3 with PID 0 on node node5 exited on signal 9 (Killed).",
                Some("mpirun says that a signal has ended process rank 3 on node node5"),
            ),
            (
                "prterun noticed that process rank 2 with PID 1617008 on node node5 exited on\r",
                Some("prterun says that a signal has ended process rank 2 on node node5"),
            ),
            (
                "  Remote daemon: [prterun-node1-34@0,1] on node node5 ",
                Some("mpirun says that it has lost its daemon on node node5"),
            ),
            ("  HNP daemon   : [[17757,0],0] on node node1", None),
            ("prterun detected that one or more processes exited with non-zero status, thus causing", None),
            ("   Process name: [prterun-node1-1234@1,3]", None),
            ("mpirun noticed that process rank 1 with PID 23857 on node", None),
            (" noticed that process rank ", None),
        ] {
            assert_eq!(failure(line.as_bytes()).as_deref(), said, "{line}");
        }
    }
}
