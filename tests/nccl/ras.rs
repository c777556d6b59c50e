//! Tests how the program queries NCCL's own RAS servers, in ranks without a GPU: see tests/nccl/ras.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::layout::ONLY_LO;
use super::namespace::Namespace;
use crate::support::namespace::can_be_made;
use crate::support::nccl::{Library, driver, newest, some};
use crate::support::one_hca::{Host, WAITS, stop};
use crate::support::running::{Running, after, as_pid_1, in_place};
use crate::support::{binary, poll_until, skip};

const SIZE: usize = 3;

/// Where the ranks listen, as those of a node do, in a network namespace of their own.
const ADDRESS: (&str, &str) = ("NCCL_RAS_ADDR", "127.0.0.1:28028");

/// A rank. It ends when its input is closed.
struct Rank {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Rank {
    fn start(namespace: &Namespace, library: &Library, number: usize, id: Option<&str>) -> Rank {
        let mut command = namespace.command(driver().join("ras"));
        command.arg(&library.path).arg(SIZE.to_string()).args(id);
        command.env("RANK", number.to_string()).env(ADDRESS.0, ADDRESS.1).env("NCCL_SOCKET_IFNAME", "lo");
        // Without this variable, three ranks of 2.32 would not share a machine.
        command.env("NCCL_MULTI_RANK_GPU_ENABLE", "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Rank { process, commands, answers }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn order(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
        assert_eq!(self.line(), "done", "{command}");
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops the process. The signal stops its threads one by one; the kernel reports `Stopped` after the
    /// last one.
    fn stop(&self) {
        let pid = Pid::from_raw(self.pid() as i32);
        kill(pid, Signal::SIGSTOP).unwrap();
        let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(status, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    }

    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).unwrap();
    }
}

struct Job {
    ranks: Vec<Rank>,
    /// The files of this machine could configure NCCL, so the ranks see those of a namespace.
    namespace: Namespace,
}

impl Job {
    fn start(library: &Library) -> Job {
        let namespace = Namespace::of(&ONLY_LO);
        let start = |number, id| Rank::start(&namespace, library, number, id);
        let mut first = start(0, None);
        let id = first.line();
        let others = (1..SIZE).map(|number| start(number, Some(&id)));
        let mut ranks: Vec<Rank> = std::iter::once(first).chain(others).collect();
        for rank in &mut ranks {
            assert_eq!(rank.line(), "ready", "{}", library.version);
        }
        Job { ranks, namespace }
    }

    /// Makes a command that asks the ranks.
    fn status(&self, arguments: &[&str]) -> Command {
        let mut command = self.namespace.command(binary());
        command.arg("status").args(arguments).arg("--state-dir=").env(ADDRESS.0, ADDRESS.1);
        command
    }

    /// Waits until `rdma-init status --ras` finally prints what is right. A rank may be too busy to answer RAS in time.
    fn says(&self, pause: &str, is_right: impl Fn(&str) -> bool) {
        poll_until("RAS answers so", || {
            let said = self.last_line(pause);
            println!("{said}");
            is_right(&said).then_some(())
        });
    }

    fn last_line(&self, pause: &str) -> String {
        let output = self.status(&[&format!("--ras={pause}")]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        text.trim_end().rsplit('\n').next().unwrap().to_owned()
    }

    /// Returns the index of the communicator's word in which NCCL counts the last kind of collectives. To
    /// find it, this marks each word once with its index; RAS then shows the marks at the counts.
    fn place_of_counts(&mut self) -> u64 {
        self.ranks[0].order("mark");
        let place = poll_until("RAS shows the marks", || {
            let output = self.status(&["--json", "--ras=0s"]).output().unwrap();
            let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let behind = document["ras"]["behind"].as_array()?;
            let marks = behind.iter().filter_map(|behind| behind["others"].as_u64());
            marks.map(|mark| mark & 0xffff_ffff).max()
        });
        self.ranks[0].order("unmark");
        place
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.process.kill();
            let _ = rank.process.wait();
        }
    }
}

/// The formats are: text, text, JSON without a comma, JSON.
#[test]
fn ranks_that_are_behind_stopped_or_killed_are_named() {
    if !cfg!(target_arch = "x86_64") {
        skip("the ranks without a GPU replace functions of NCCL in x86-64's instructions");
        return;
    }
    if !can_be_made() {
        return;
    }
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    for library in some(&["2.25.1", "2.27.7", "2.28.9"]) {
        if !library.is_at_least("2.24") {
            continue;
        }
        let mut job = Job::start(&library);
        let named = |job: &Job, rank: usize| {
            format!("rank {rank} of {SIZE} on {host} (GPU {rank}, process {})", job.ranks[rank].pid())
        };
        let source = format!("NCCL's RAS ({}): ", library.version);
        let wanted = format!("NCCL's RAS ({}) sees no rank that is missing", library.version);
        job.says("0s", |said| said.starts_with(&wanted));

        let place = job.place_of_counts();
        for (number, count) in [17, 17, 16].iter().enumerate() {
            job.ranks[number].order(&format!("count {place} {count}"));
        }
        // Up to 2.25, NCCL counts all kinds together.
        let count = if library.is_at_least("2.26") { "16 x " } else { "16 collectives" };
        let behind = format!("{} is behind: it has launched {count}", named(&job, 2));
        let start = format!("{source}the job hangs: in 1s, no rank has launched a collective; {behind}");
        job.says("1s", |said| said.starts_with(&start) && said.ends_with(", others 17."));
        // Without a second answer, the difference may be temporary.
        let start = format!("{source}{behind}");
        let end = "normal for a moment, and a hang only if it stays.";
        job.says("0s", |said| said.starts_with(&start) && said.ends_with(end));

        // If the kernel gives a question to the stopped rank, there is no answer.
        job.ranks[2].stop();
        let missing = match library.is_at_least("2.26") {
            true => format!("{source}{} does not answer RAS.", named(&job, 2)),
            // Up to 2.25, RAS does not report where a missing rank is, but only which process it cannot
            // reach.
            false => format!(
                "{source}rank 2 of {SIZE} does not answer RAS; RAS does not reach process {} on {host}.",
                job.ranks[2].pid()
            ),
        };
        job.says("0s", |said| said == missing);
        job.ranks[2].send(Signal::SIGCONT);
        job.says("0s", |said| said.starts_with(&start));

        job.ranks[1].send(Signal::SIGKILL);
        job.ranks[1].process.wait().unwrap();
        let killed = match library.is_at_least("2.26") {
            true => format!("{source}{} does not answer RAS; ", named(&job, 1)),
            false => format!("{source}rank 1 of {SIZE} does not answer RAS; "),
        };
        job.says("0s", |said| said.starts_with(&killed) && said.contains(&behind));
    }
}

/// The job moves data, and stops when one of its ranks does. The watcher of the init asks the RAS server of the real
/// library, which is in the ranks. The test above has the other formats.
#[test]
fn the_watcher_names_the_rank_that_has_stopped() {
    if !cfg!(target_arch = "x86_64") {
        skip("the ranks without a GPU replace functions of NCCL in x86-64's instructions");
        return;
    }
    if !can_be_made() {
        return;
    }
    let name = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let (library, host) = (newest(), Host::with_infiniband());
    let job = Job::start(&library);
    // The watcher asks once a minute, and for the first time if no data moves at the start.
    job.ranks[2].stop();
    let address = format!("{}={}", ADDRESS.0, ADDRESS.1);
    let options = ["--supervise", "--watch-after", "3s", "--set", &address];
    let start = |way: fn(Command) -> Running| {
        let command = host.shows("exec nsenter --net=/proc/self/fd/0", &[&options[..], &WAITS].concat());
        // A start in place shares the mount namespace of the tests.
        let mut command = after("exec unshare --mount", command);
        command.stdin(job.namespace.network());
        let mut running = way(command);
        running.wait_for("ready");
        running
    };
    let moves = |running: &mut Running, words: &str| {
        host.port("counters/port_xmit_data", words);
        running.wait_for_error("No data has moved over mlx5_0 for ");
    };
    // A container beside the one of the ranks.
    let mut other = start(as_pid_1);
    moves(&mut other, "1000000");
    other.wait_for_error("a process outside this container answers");
    let said = stop(other);
    assert!(!said.contains(&format!(" of {SIZE}")), "{said}");

    let mut running = start(in_place);
    moves(&mut running, "2000000");
    running.wait_for_error(&format!(
        " UTC: NCCL's RAS ({}): rank 2 of {SIZE} on {name} (GPU 2, process {}) does not answer RAS.\n",
        library.version,
        job.ranks[2].pid()
    ));
    let said = stop(running);
    let named = (0..SIZE).filter(|rank| said.contains(&format!("rank {rank} of "))).count();
    assert_eq!(named, 1, "no other rank is named: {said}");
    job.ranks[2].send(Signal::SIGCONT);
}
