//! The account of the job's ports: what they have moved and counted since the note was made, at the end of the job and
//! while it runs.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::refuse::leave_account;
use super::traffic::{Note, congestion, looks};
use crate::facts::congestion::Congestion;
use crate::facts::identity::{age, started};
use crate::facts::port_look::PortLook;
use crate::init::{AccountOutcome, AtEnd, HandoffMemory};
use crate::json;
use crate::log::{Level, Log};
use crate::report::account::{When, lines};
use crate::report::start;
use crate::watch::account::{Account, Watcher};
use crate::watch::{WatchOrders, WatchedPort};

/// Gives the account of the job since the note was made. Call this in a separate process: a driver may take long.
pub(crate) fn give_account(note: &[u8], at_end: &AtEnd) -> AccountOutcome {
    let Ok(Note { format, level, ports, watch, .. }) = json::read(note) else {
        if let Some(ended) = at_end.failed.filter(|_| at_end.is_out_of_memory) {
            leave_account(&ended(AccountOutcome::Sound));
        }
        return AccountOutcome::Sound;
    };
    let log = Log::start(format, level.min(Level::Info), Log::patient());
    let now = at_end.looks.then(|| looks(&ports));
    if now.is_none() {
        log.warn("The HCAs did not answer when the command had ended: a driver hangs.");
    }
    let watcher = watcher(&watch, at_end.watcher_ended);
    let seen = at_end.seen.as_ref().and_then(|(at, seen)| Some((*at, json::read(seen).ok()?)));
    let Some(mut account) = Account::new(&ports, seen, now.as_deref(), at_end.ran, watcher) else {
        return AccountOutcome::Sound;
    };
    if at_end.looks {
        account.add_congestion(&ports, &congestion(&ports, now.as_deref()));
    }
    if at_end.is_cut_short {
        // NCCL's own timeouts may be as long as the watcher's.
        account.tells_rest_from = account.beginning;
    }
    start::account(&log, &account, at_end.is_cut_short);
    let outcome = if account.broke_lately() { AccountOutcome::Broken } else { AccountOutcome::Sound };
    // A text about a sound fabric would only take the place of what Kubernetes shows otherwise, such as the log's end.
    if let Some(ended) = at_end.failed
        && (account.is_noteworthy() || at_end.is_out_of_memory)
    {
        let lines = lines(&account, When::AtEnd, &[]).into_iter().map(|line| format!(" {line}."));
        leave_account(&(ended(outcome) + &lines.collect::<String>()));
    }
    outcome
}

/// Returns the account of a job whose command still runs; `None` if its supervisor cannot be asked, or has no note.
/// `has_ended`: whether its watcher is gone.
pub(crate) fn account_so_far(command: i32, has_ended: bool) -> Option<Account> {
    let (supervisor, memory) = HandoffMemory::beside(command)?;
    let Note { ports, watch, .. } = json::read(&memory.ports()?).ok()?;
    let prepared = memory.prepared().unwrap_or_default();
    let ran = Duration::from_secs(age(started(supervisor)?)?).saturating_sub(prepared);
    let seen = memory.seen().and_then(|(at, seen)| Some((at, json::read(&seen).ok()?)));
    let watcher = watcher(&watch, has_ended);
    // A driver that hangs must not hold up a probe.
    let last_look = seen.as_ref().map(|(at, _)| *at);
    let is_recent = watcher.is_recent(last_look, ran);
    let (now, congestion) = looks_within(STATUS_PATIENCE, &ports, !is_recent).unzip();
    let mut account = Account::new(&ports, seen, now.flatten().as_deref(), ran, watcher)?;
    account.add_congestion(&ports, &congestion.unwrap_or_default());
    Some(account)
}

/// What the account has to know about a watcher with these orders.
fn watcher(orders: &WatchOrders, has_ended: bool) -> Watcher {
    let WatchOrders { interval, after, expected, .. } = *orders;
    Watcher { has_ended, interval, after, expected }
}

/// Returns whether this command's supervisor has ports for a watcher; `None` if it cannot be asked.
pub(crate) fn was_to_watch(command: i32) -> Option<bool> {
    HandoffMemory::beside(command).map(|(_, memory)| memory.ports().is_some())
}

/// How long `status` waits for the ports' counters.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);

/// Looks at the ports in a thread, if that is asked for, and at what they count of congestion; `None` if that takes
/// longer. A thread that hangs ends with the process.
fn looks_within(
    time: Duration,
    ports: &[WatchedPort],
    asks_for_looks: bool,
) -> Option<(Option<Vec<PortLook>>, Vec<Congestion>)> {
    let (send, receive) = mpsc::channel();
    let ports = ports.to_vec();
    let look = move || {
        let looks = asks_for_looks.then(|| looks(&ports));
        let congestion = congestion(&ports, looks.as_deref());
        send.send((looks, congestion))
    };
    thread::Builder::new().spawn(look).ok()?;
    receive.recv_timeout(time).ok()
}
