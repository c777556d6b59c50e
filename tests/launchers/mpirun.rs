//! Runs Open MPI's mpirun with two ranks. After a SIGTERM, mpirun stops its ranks in its own way: it sends
//! SIGCONT, then SIGTERM after some seconds (odls_base_sigkill_timeout), then SIGKILL after the same time
//! again. It counts full seconds of the clock, so its default of 1 may leave a rank almost no time. Then it
//! exits with code 1, whatever the ranks' codes are.

use std::path::Path;
use std::time::Duration;

use nix::libc;

use rdma_init::env_plugin::answer::hash;

use super::job::{Init, Job};
use crate::support::{DEADLINE, binary, repository, skip};

/// Gives the ranks on a busy machine enough time to handle a SIGTERM: mpirun sends theirs 7 to 8 seconds
/// after it received its own, and SIGKILL after the same time again.
const PATIENT: [&str; 3] = ["--mca", "odls_base_sigkill_timeout", "8"];

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Starts mpirun with options, and two ranks of a command.
fn mpirun(
    init: Init,
    options: &[&str],
    mca: &[&str],
    rank: impl FnOnce(&Path) -> Vec<String>,
) -> Option<Job> {
    if !PATH.split(':').any(|folder| Path::new(folder).join("mpirun").exists()) {
        skip("there is no mpirun (Debian's openmpi-bin)");
        return None;
    }
    let arguments = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"];
    let job = Job::start(init, options, PATH, |folder| {
        arguments.iter().chain(mca).map(ToString::to_string).chain(rank(folder)).collect()
    });
    Some(job)
}

/// Starts mpirun with ranks that run until they are asked to end, and waits until they are ready.
fn ranks(init: Init, options: &[&str], mca: &[&str], more: &[&str]) -> Option<Job> {
    let script = repository("tests/launchers/rank.sh").display().to_string();
    let rank = |folder: &Path| {
        let more = more.iter().map(ToString::to_string);
        [script, folder.display().to_string()].into_iter().chain(more).collect()
    };
    Some(mpirun(init, options, mca, rank)?.wait_for("ready", 1))
}

#[test]
fn a_stop_ends_mpirun_and_every_rank() {
    for init in Init::BOTH {
        let Some(job) = ranks(init, &["--stop-timeout", "60s"], &PATIENT, &[]) else { return };
        job.end_by_signal(libc::SIGTERM)
            .expect_code(1)
            .expect_of_both("asked", 1)
            .expect_end_line(["mpirun ended with exit code 1", "SIGTERM was forwarded to it"])
            .expect_no_process_killed();
    }
}

#[test]
fn usr1_reaches_every_rank_and_the_job_goes_on() {
    for init in Init::BOTH {
        let Some(mut job) = ranks(init, &[], &[], &[]) else { return };
        for count in 1..=3 {
            job.running.kill(libc::SIGUSR1);
            job = job.wait_for("usr1", count);
        }
        assert!(!job.running.has_ended());
        job.end_by_signal(libc::SIGTERM).expect_code(1).expect_of_both("usr1", 3);
    }
}

/// If mpirun gives its ranks more time than the stop timeout, the stop timeout ends them.
#[test]
fn ranks_that_ignore_a_stop_are_gone_after_the_stop_timeout() {
    for init in Init::BOTH {
        // mpirun asks the ranks to end after 11 to 12 seconds, and would kill them after 22 to 24.
        let mca = ["--mca", "odls_base_sigkill_timeout", "12"];
        let Some(job) = ranks(init, &["--stop-timeout", "18s"], &mca, &["stubborn"]) else { return };
        job.end_by_signal(libc::SIGTERM)
            .expect_code(137)
            .expect_of_both("asked", 1)
            .expect_wait(Duration::from_secs(18))
            .expect_end_line(["mpirun was killed by SIGKILL", "after the stop-timeout of 18s were killed"]);
    }
}

/// An mpirun that is killed leaves its ranks behind, each in its own process group.
#[test]
fn ranks_whose_mpirun_was_killed_are_asked_once_and_end() {
    for init in Init::BOTH {
        let Some(job) = ranks(init, &["--drain-timeout", "25s"], &[], &[]) else { return };
        job.end_by_killing_the_launcher()
            .expect_code(137)
            .expect_of_both("asked", 1)
            .expect_no_process_killed();
    }
}

/// The program becomes the rank: it keeps the process that mpirun started, its variables, and its exit
/// code.
#[test]
fn in_front_of_each_rank_the_program_becomes_the_rank() {
    let script = r#"rank=$OMPI_COMM_WORLD_RANK
        { cat /proc/$PPID/comm; echo $T_OUTER $T_INNER; } >"$0/rank-$rank"
        # mpirun kills the others a second after one has failed.
        [ "$rank" = 1 ] || { : >"$0/done"; exit 0; }
        until [ -e "$0/done" ]; do sleep 0.02; done
        exit 7"#;
    let rank = |folder: &Path| {
        let ours = binary().display().to_string();
        let arguments = ["--set", "T_INNER=$inner", "--", "sh", "-c", script].map(str::to_owned);
        [ours].into_iter().chain(arguments).chain([folder.display().to_string()]).collect()
    };
    let Some(mut job) = mpirun(Init::Pid1, &["--set", "T_OUTER=outer"], &[], rank) else { return };
    assert!(job.running.ends_within(DEADLINE));
    for rank in [0, 1] {
        assert_eq!(job.lines("rank", rank), ["mpirun", "outer $inner"]);
    }
    let ended = job.running.end().expect_code(7);
    assert!(ended.stderr.contains("mpirun ended with exit code 7"), "{ended:#?}");
}

/// mpirun's own hook puts the program in front of each rank, whatever the job's command line is. Copies are
/// replaced, even for libraries that ask no env plugin.
#[test]
fn as_the_fork_agent_exec_gives_each_rank_the_variables_of_its_own_node() {
    let entry = |name: &str, value: &str| {
        format!("{name}={}", String::from_utf8(hash(value.as_bytes()).into()).unwrap())
    };
    let list = [entry("ALGO", "Tree"), entry(".UCX_NET_DEVICES", "mlx5_9:1")].join(",");
    let marker = format!("NCCL_RDMA_INIT=1:another:{list}");
    let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let state = format!("--state-dir={}", state.path().join("state").display());
    let agent = format!("{} exec {state} --", binary().display());
    let copies = ["-x", "NCCL_ALGO=Tree", "-x", "UCX_NET_DEVICES=mlx5_9:1", "-x", &marker];
    let script = r#"echo "$NCCL_ALGO $UCX_NET_DEVICES" >"$0/rank-$OMPI_COMM_WORLD_RANK""#;
    let rank = |folder: &Path| ["sh", "-c", script, folder.to_str().unwrap()].map(str::to_owned).to_vec();
    let with = |mca: &[&str]| {
        let mut job =
            mpirun(Init::Pid1, &["--set", "NCCL_ALGO=Ring", &state], &[mca, &copies].concat(), rank)?;
        assert!(job.running.ends_within(DEADLINE));
        let said = [0, 1].map(|rank| job.lines("rank", rank).concat());
        job.running.end().expect_code(0);
        Some(said)
    };
    let Some(without) = with(&[]) else { return };
    assert_eq!(without, ["Tree mlx5_9:1"; 2]);
    assert_eq!(with(&["--mca", "orte_fork_agent", &agent]).unwrap(), ["Ring "; 2]);
}
