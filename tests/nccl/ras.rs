//! Tests how the program queries NCCL's own RAS servers, in ranks without a GPU: see tests/nccl/ras.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::support::nccl::{Library, driver, some};
use crate::support::one_hca::{Host, stop};
use crate::support::port::free_port;
use crate::support::{binary, poll_until, skip};

const SIZE: usize = 3;

/// A rank. It ends when its input is closed.
struct Rank {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Rank {
    fn start(library: &Library, number: usize, id: Option<&str>, address: &str) -> Rank {
        let mut command = Command::new(driver().join("ras"));
        command.arg(&library.path).arg(SIZE.to_string()).args(id);
        command.env("RANK", number.to_string()).env("NCCL_RAS_ADDR", address);
        command.env("NCCL_SOCKET_IFNAME", "lo").env_remove("NCCL_DEBUG");
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
    address: String,
}

impl Job {
    /// Starts a job whose ranks all listen at one address, as those of a node do.
    fn start(library: &Library) -> Job {
        let address = format!("127.0.0.1:{}", free_port());
        let mut first = Rank::start(library, 0, None, &address);
        let id = first.line();
        let others = (1..SIZE).map(|number| Rank::start(library, number, Some(&id), &address));
        let mut ranks: Vec<Rank> = std::iter::once(first).chain(others).collect();
        for rank in &mut ranks {
            assert_eq!(rank.line(), "ready", "{}", library.version);
        }
        Job { ranks, address }
    }

    /// Returns what `rdma-init status --ras` finally prints.
    fn says(&self, pause: &str) -> String {
        let mut command = Command::new(binary());
        command.arg("status").arg(format!("--ras={pause}")).arg("--state-dir=");
        let output = command.env("NCCL_RAS_ADDR", &self.address).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        text.trim_end().rsplit('\n').next().unwrap().to_owned()
    }

    /// Returns the index of the communicator's word in which NCCL counts the last kind of collectives. To
    /// find it, this marks each word once with its index; RAS then shows the marks at the counts.
    fn place_of_counts(&mut self) -> u64 {
        self.ranks[0].order("mark");
        let mut command = Command::new(binary());
        command.args(["status", "--json", "--ras=0s", "--state-dir="]).env("NCCL_RAS_ADDR", &self.address);
        let output = command.output().unwrap();
        self.ranks[0].order("unmark");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let behind = document["ras"]["behind"].as_array().unwrap();
        let marks = behind.iter().filter_map(|behind| behind["others"].as_u64());
        let marks = marks.map(|mark| mark & 0xffff_ffff);
        marks.max().unwrap_or_else(|| panic!("{document}"))
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
        let sound = job.says("0s");
        let wanted = format!("NCCL's RAS ({}) sees no rank that is missing", library.version);
        assert!(sound.starts_with(&wanted), "{sound}");

        let place = job.place_of_counts();
        for (number, count) in [17, 17, 16].iter().enumerate() {
            job.ranks[number].order(&format!("count {place} {count}"));
        }
        // Up to 2.25, NCCL counts all kinds together.
        let count = if library.is_at_least("2.26") { "16 x " } else { "16 collectives" };
        let behind = format!("{} is behind: it has launched {count}", named(&job, 2));
        let hang = job.says("1s");
        let start = format!("{source}the job hangs: in 1s, no rank has launched a collective; {behind}");
        assert!(hang.starts_with(&start) && hang.ends_with(", others 17."), "{hang}");
        // Without a second answer, the difference may be temporary.
        let once = job.says("0s");
        assert!(once.starts_with(&format!("{source}{behind}")), "{once}");
        assert!(once.ends_with("normal for a moment, and a hang only if it stays."), "{once}");

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
        assert_eq!(job.says("0s"), missing);
        job.ranks[2].send(Signal::SIGCONT);
        let expected = format!("{source}{behind}");
        poll_until("the rank that goes on answers RAS", || {
            job.says("0s").starts_with(&expected).then_some(())
        });

        job.ranks[1].send(Signal::SIGKILL);
        job.ranks[1].process.wait().unwrap();
        let killed = match library.is_at_least("2.26") {
            true => format!("{source}{} does not answer RAS; ", named(&job, 1)),
            false => format!("{source}rank 1 of {SIZE} does not answer RAS; "),
        };
        let last = job.says("0s");
        assert!(last.starts_with(&killed) && last.contains(&behind), "{last}");
    }
}

/// The job moves data, and stops when one of its ranks does. The watcher of the init asks the RAS server of the real
/// library, which is in the ranks.
#[test]
fn the_watcher_names_the_rank_that_has_stopped() {
    if !cfg!(target_arch = "x86_64") {
        skip("the ranks without a GPU replace functions of NCCL in x86-64's instructions");
        return;
    }
    let name = nix::unistd::gethostname().unwrap().into_string().unwrap();
    for library in some(&["2.27.7", "2.28.9"]) {
        let job = Job::start(&library);
        let host = Host::with_infiniband();
        let address = format!("NCCL_RAS_ADDR={}", job.address);
        let mut running = host.job(&["--watch-after", "3s", "--set", &address]);
        host.port("counters/port_xmit_data", "1000000");
        job.ranks[2].stop();
        running.wait_for_error("No data has moved over mlx5_0 for ");
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
}
