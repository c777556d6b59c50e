//! What node 0 reports: which nodes it is waiting for, how far the nodes are, and the verdict.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{JobPhase, Terms, Zero};
use crate::preflight::judge::bisection;
use crate::preflight::meet::message::{ToNode, Told};
use crate::preflight::meet::node::ALIVE;
use crate::preflight::meet::progress::Progress;
use crate::preflight::meet::times::TELLING;
use crate::text::{condensed_to, shortened, visible};

/// The most nodes that a message about missing nodes names.
pub(super) const NAMED: usize = 8;

/// How long node 0 waits for the nodes to close after it has sent the verdict.
const CLOSING: Duration = Duration::from_secs(2);

/// How often progress is logged without a terminal, and how often it is shown on one.
const LINE: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(200);

/// How old the text about missing nodes may be before it is made again.
const LATELY: Duration = Duration::from_secs(1);

pub(super) fn every(terms: &Terms) -> Duration {
    if terms.show.is_some() { GLANCE } else { LINE }
}

impl Zero<'_> {
    /// Sends the verdict to the nodes.
    pub fn tell(&mut self, verdict: impl Fn(u32) -> Told, own: BorrowedFd) {
        let end = Instant::now() + TELLING;
        self.phase = JobPhase::Telling;
        // There is nothing else to send.
        (self.next_word, self.next_line) = (end, end);
        self.hub.send_all(|node| ToNode::Verdict(verdict(node)));
        while self.hub.is_sending() && Instant::now() < end {
            // Node 0's own process may have ended, because it has received the verdict.
            if self.hear(end, own).is_err() {
                return;
            }
        }
        // A node that has the verdict closes its connection. If node 0 closed first while some of the
        // node's data was unread, the kernel would reset the connection, and the node might lose the
        // verdict.
        let end = end.min(Instant::now() + CLOSING);
        while !self.hub.members().is_empty() && Instant::now() < end {
            if self.hear(end, own).is_err() {
                return;
            }
        }
    }

    fn shown_missing(&self) -> String {
        let name = |node: u32| match self.terms.names.get(node as usize) {
            Some(name) => visible(&shortened(name)),
            None => format!("node {node}"),
        };
        let names: Vec<String> = self.missing().map(name).collect();
        condensed_to(&names, NAMED)
    }

    /// Returns the missing nodes as of a moment ago: many nodes join at once, and each of them gets
    /// this text.
    pub(super) fn missing_lately(&mut self) -> String {
        let now = Instant::now();
        match &self.missing {
            Some((at, missing)) if now.saturating_duration_since(*at) < LATELY => missing.clone(),
            _ => {
                let missing = self.shown_missing();
                self.missing = Some((now, missing.clone()));
                missing
            }
        }
    }

    pub(super) fn update_waiting_nodes(&mut self) {
        let now = Instant::now();
        if now >= self.next_word {
            self.next_word = now + ALIVE;
            let missing = self.missing_lately();
            self.hub.send_all(|_| ToNode::Waiting { missing: missing.clone() });
        }
        self.report_progress(Zero::meeting);
    }

    pub(super) fn update_working_nodes(&mut self) {
        if Instant::now() >= self.next_word {
            self.send_keep_alive();
        }
        self.report_progress(Zero::working);
    }

    /// Sends the nodes a keep-alive before node 0 computes something and sends nothing meanwhile.
    pub fn send_keep_alive(&mut self) {
        self.next_word = Instant::now() + ALIVE;
        self.hub.send_all(|_| ToNode::Working);
    }

    /// Schedules progress of the new stage to be shown at once, if there is a terminal.
    pub(super) fn show_progress_soon(&mut self) {
        if self.terms.show.is_some() {
            self.next_line = Instant::now();
        }
    }

    fn report_progress(&mut self, progress: fn(&Self) -> Progress) {
        let now = Instant::now();
        if now < self.next_line {
            return;
        }
        self.next_line = now + every(self.terms);
        let progress = progress(self);
        match self.terms.show {
            Some(show) => show(&progress),
            None => (self.terms.say)(&format!("preflight: {progress}")),
        }
    }

    fn meeting(&self) -> Progress {
        let mut stage = format!("have joined; node 0 is waiting for {}", self.shown_missing());
        // A node that has joined has resolved the name.
        if let Some(why) = self.terms.unresolved.filter(|_| self.hub.members().len() < 2) {
            let meet = &self.terms.meet;
            stage.push_str(&format!("; node 0 cannot resolve its own name ({meet}): {why}"));
        }
        Progress { done: self.hub.members().len(), all: self.heard.nodes.len(), thing: "node", stage }
    }

    fn working(&self) -> Progress {
        let round = self.ledger.waits_for().map(|(round, _)| round).min().unwrap_or_default();
        let round = usize::from(round.saturating_sub(self.series.first)) + 1;
        let of = self.series.rounds;
        let evidence = &self.heard.evidence;
        let mut stage = match self.series.first {
            bisection::ROUND => "have moved data, all at once".to_owned(),
            first if evidence.is_crossing(first) => "have tried their rails crosswise".to_owned(),
            first if evidence.is_again(first) => {
                format!("are done, second tries, round {} of {of}", round.min(of))
            }
            _ => format!("are done, round {} of {of}", round.min(of)),
        };
        // If most nodes are finished, the remaining ones are of interest.
        let left = self.ledger.busy();
        if left <= NAMED && left * 2 < self.hub.members().len() {
            let names: Vec<String> =
                self.ledger.waits_for().map(|(_, node)| self.heard.evidence.name(node)).collect();
            stage.push_str(&format!("; node 0 is waiting for {}", condensed_to(&names, NAMED)));
        }
        // A pair is done when both of its nodes have finished it.
        let all = self.series.pairs;
        Progress { done: all.saturating_sub(self.ledger.open()), all, thing: "pair", stage }
    }
}
