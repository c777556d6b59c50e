//! Monitors the job while it runs.

pub(crate) mod account;
mod balance;
mod command;
#[cfg(test)]
mod day;
mod fold;
pub(crate) mod job;
mod judge;
mod lines;
mod news;
mod pace;
mod ranks;
pub(crate) mod ras;
pub(crate) mod track;
mod windows;

use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

use crate::facts::port_look::PortLook;
use crate::finding::Finding;
use crate::findings::traffic::Expected;
use crate::sys::fork::Ended;
use crate::sys::seccomp::refuse_what_is_never_called;
use crate::sys::{farewell, memory, signals};
use crate::wire::connection::timeout;
use command::OnFinding;
use job::{Job, JobOrders};
pub(crate) use judge::{History, Standing};
use judge::{Judge, Limits};
use news::News;
use ranks::Ranks;
pub(crate) use track::WatchedPort;

/// The settings of the watcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WatchOrders {
    /// How often it reads the ports.
    pub interval: Duration,
    /// How long traffic may pause before the watcher reports it.
    pub after: Duration,
    /// Where NCCL's RAS answers, if the job's NCCL has it.
    pub ras: Option<String>,
    /// The command to start for each warning and each error, with its arguments; empty for none.
    pub on_finding: Vec<String>,
    /// How it speaks with the watchers of the job's other nodes, if it does.
    pub job: Option<JobOrders>,
    #[serde(default)]
    pub expected: Expected,
    /// Whether the job answers requests, and may rest for as long as none come.
    #[serde(default)]
    pub is_server: bool,
}

/// What the watcher needs from its process.
pub(crate) trait Surroundings {
    /// Looks at the ports; after an event, at all of them as a whole.
    fn look(&mut self, ports: &[WatchedPort], is_after_event: bool) -> Vec<PortLook>;
    fn say(&self, finding: &Finding);
    /// Keeps what the watcher has seen until this time, for the account; `None` if that is as before.
    fn remember(&mut self, at: Duration, history: Option<&History>);
    /// Writes the metrics, if it does that. `is_up`: whether the watcher goes on.
    fn publish(&mut self, standing: &Standing, is_up: bool);
    fn publishes(&self) -> bool;
    fn warn(&self, message: &str);
    /// Whether the watcher is to be told how the command ended.
    fn await_end(&self, awaits: bool);
}

/// Looks at the ports after each interval, and says what it finds. Returns when it is told how the command ended; one
/// that is not is killed. Signals must be blocked. `ran`: how long ago the command was started; `token` is what the
/// nodes of the job know each other by.
pub(crate) fn run(
    ports: Vec<WatchedPort>,
    orders: WatchOrders,
    ran: Duration,
    token: &str,
    surroundings: &mut impl Surroundings,
) {
    let began = Instant::now();
    let started = began.checked_sub(ran).unwrap_or(began);
    let WatchOrders { interval, after, expected, is_server, .. } = orders;
    let mut judge = Judge::new(ports, Limits { interval, after, expected, is_server });
    let mut ranks = orders.ras.map(Ranks::new);
    // The command of `on-finding` is a program that this process executes.
    if orders.on_finding.is_empty() {
        refuse_what_is_never_called();
    }
    let job = orders.job.filter(|_| !token.is_empty());
    let mut job = job.and_then(|job| Job::new(job, token, started, interval, after));
    let mut command = OnFinding::new(orders.on_finding, job.as_ref().and_then(|job| job.files));
    command.adopt();
    command.check().iter().for_each(|message| surroundings.warn(message));
    let mut awaits_end = false;
    let unwatched = lines::unwatched(judge.ports());
    judge.pass(started.elapsed(), unwatched).iter().for_each(|finding| surroundings.say(finding));
    let mut news = News::listen(judge.ports());
    loop {
        memory::give_back_heap();
        let mut next = Instant::now() + interval;
        while Instant::now() < next {
            command.go_on(Instant::now()).iter().for_each(|message| surroundings.warn(message));
            let is_joined = job.as_ref().is_some_and(Job::is_joined);
            let awaits = command.is_set() || is_joined || surroundings.publishes();
            if std::mem::replace(&mut awaits_end, awaits) != awaits {
                surroundings.await_end(awaits);
            }
            // Without an answer, nothing more is called: what is called here stays in memory while it waits.
            if let Some(of_ranks) = ranks.as_mut().and_then(Ranks::go_on) {
                for finding in judge.pass(started.elapsed(), vec![of_ranks]) {
                    surroundings.say(&finding);
                    command.take(&finding);
                }
            }
            next = news.next_look(Instant::now(), next);
            let (answer, late) = ranks.as_ref().and_then(Ranks::awaited).unzip();
            let (happens, listens_again) = news.awaited(Instant::now());
            let wakes = [command.wake_at(), late, listens_again];
            let wake = wakes.into_iter().flatten().fold(next, Instant::min);
            let also: Vec<PollFd> = answer.into_iter().chain(happens).collect();
            // The end of the command of `on-finding` comes as a signal, and so does that of the job's own.
            let ended = match &mut job {
                Some(job) => job.wait(wake, &also),
                None => wait_until(wake, also),
            };
            if let Some(ended) = ended {
                job.iter_mut().for_each(|job| job.bye(ended));
                // What made the command fail may have happened since the last look. The account reports it.
                if command.is_set() && ended != Ended::Exited(0) {
                    let looks = surroundings.look(judge.ports(), true);
                    judge.judge(started.elapsed(), looks).iter().for_each(|finding| command.take(finding));
                }
                command.finish(|message| surroundings.warn(message));
                surroundings.publish(&judge.standing(started.elapsed()), false);
                return;
            }
        }
        // The judge reports each change only once, so whatever is not said here is never said.
        let looks = surroundings.look(judge.ports(), news.begin_look(Instant::now()));
        let at = started.elapsed();
        let mut findings = judge.judge(at, looks);
        // Before it is said: PID 1 may kill this process at any time, and the account must have what was said.
        surroundings.remember(at, judge.changed());
        let from_job = job.as_mut().and_then(|job| job.look(&judge));
        let from_ranks = ranks.as_mut().and_then(|ranks| ranks.ask(judge.doubt()));
        findings.extend(judge.pass(at, from_ranks.into_iter().chain(from_job).collect()));
        for finding in &findings {
            surroundings.say(finding);
            if !job.as_ref().is_some_and(|job| job.reports(finding)) {
                command.take(finding);
            }
        }
        surroundings.remember(at, judge.changed());
        surroundings.publish(&judge.standing(at), true);
    }
}

/// Waits for a signal, for what `also` names, or until this time. Returns how the command ended, if it has.
fn wait_until(until: Instant, also: Vec<PollFd>) -> Option<Ended> {
    let left = || until.saturating_duration_since(Instant::now());
    if also.is_empty() {
        memory::forget_own_code();
        let received = signals::wait(Some(until));
        if received.is_err() {
            sleep(left());
        }
        return received.ok().flatten().and_then(|received| farewell::told(&received));
    }
    let pending = signals::pending_fd().ok();
    let mut fds: Vec<PollFd<'_>> = also;
    fds.extend(pending.as_ref().map(|pending| PollFd::new(pending.as_fd(), PollFlags::POLLIN)));
    let time = timeout(left());
    // A look needs megabytes of code and constants, which would count as this process's while it only waits. What is
    // called after this comes back, with its neighbors.
    memory::forget_own_code();
    match poll(&mut fds, time) {
        // EINTR is harmless: the caller looks again.
        Ok(_) | Err(Errno::EINTR) => {}
        // A filter, or a limit: the ports are watched all the same.
        Err(_) => sleep(left().min(Duration::from_secs(1))),
    }
    taken()
}

/// Takes all pending signals. Returns how the command ended, if one of them says that.
fn taken() -> Option<Ended> {
    let mut ended = None;
    while let Ok(Some(received)) = signals::take() {
        ended = ended.or_else(|| farewell::told(&received));
    }
    ended
}
