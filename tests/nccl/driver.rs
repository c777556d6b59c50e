//! A running driver, which runs one NCCL library with any number of cases.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use super::case::Case;
use super::outcome::Outcome;
use crate::support::nccl::{self, Library};

pub struct Nccl {
    driver: Child,
    cases: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Nccl {
    /// Starts NCCL on the hosts that the cases describe.
    pub fn start(library: &Library) -> Nccl {
        Nccl::start_with(library, &[])
    }

    /// Starts NCCL as [`Nccl::start`] does, but the loader also searches these directories.
    pub fn start_with(library: &Library, folders: &[&Path]) -> Nccl {
        let mut command = nccl::start_driver();
        // The loader must find the harness's libibverbs before that of this machine.
        let driver = nccl::driver();
        let folders = std::iter::once(driver.as_path()).chain(folders.iter().copied());
        command.arg("described").env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
        Nccl::spawn(command, library)
    }

    /// Starts NCCL as [`Nccl::start`] does, but in a process that was started with these variables. If a case
    /// also has one of them, it is not set again in the process.
    pub fn start_in(environment: &[(&str, &str)], library: &Library) -> Nccl {
        let mut command = nccl::start_driver();
        command.arg("described").env("LD_LIBRARY_PATH", nccl::driver());
        command.envs(environment.iter().copied());
        Nccl::spawn(command, library)
    }

    /// Starts NCCL where the command of `start` runs the driver, with the libibverbs and the devices there: in
    /// the mode `real`, a case contains only the environment and the questions.
    pub fn start_by(start: impl FnOnce(&Path) -> Command, mode: &str, library: &Library) -> Nccl {
        let mut command = start(&nccl::driver().join("driver"));
        command.arg(mode);
        Nccl::spawn(command, library)
    }

    fn spawn(mut command: Command, library: &Library) -> Nccl {
        command.arg(&library.path).args(&*library.symbols());
        let mut driver = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let cases = driver.stdin.take();
        let answers = BufReader::new(driver.stdout.take().unwrap());
        Nccl { driver, cases, answers }
    }

    /// Runs the cases, each of which takes about a millisecond.
    pub fn run(&mut self, cases: &[Case]) -> Vec<Outcome> {
        let Nccl { cases: to, answers, .. } = self;
        let to = to.as_mut().unwrap();
        thread::scope(|scope| {
            // A separate thread writes the cases, because the pipe cannot hold many cases and their
            // answers.
            let writer =
                scope.spawn(move || cases.iter().try_for_each(|case| to.write_all(case.lines().as_bytes())));
            let outcomes = cases.iter().map(|case| next(answers, case)).collect();
            writer.join().unwrap().unwrap();
            outcomes
        })
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        drop(self.cases.take());
        let _ = self.driver.wait();
    }
}

/// Reads the driver's answers to its next case.
pub fn next(answers: &mut impl BufRead, case: &impl Debug) -> Outcome {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        let length = answers.read_line(&mut line).unwrap();
        assert!(length > 0, "the driver has ended (see above) at {case:?}");
        let line = line.trim_end_matches('\n');
        let Some(end) = line.strip_prefix("end ") else {
            lines.push(line.to_owned());
            continue;
        };
        let [signal, status, size] = end.split(' ').map(|n| n.parse().unwrap()).collect::<Vec<i32>>()[..]
        else {
            panic!("the driver says {line:?}");
        };
        let mut log = vec![0; size as usize];
        answers.read_exact(&mut log).unwrap();
        let told = String::from_utf8_lossy(&log);
        assert!(signal != 0 || status == 0, "{told}\nNCCL ended with status {status} at {case:?}");
        return Outcome::read(&lines, &log, (signal != 0).then_some(signal));
    }
}
