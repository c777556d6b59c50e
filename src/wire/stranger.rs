//! Invalid peers: processes that connect but are not nodes of this job. They are counted, and reported in a
//! few lines, however many there are.

use crate::text::counted;

/// What is wrong with an invalid peer, ordered by how much this helps a reader: the last one helps most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The peer closed the connection.
    Gone,
    /// There were too many connections, so this one was closed.
    Evicted,
    Silent,
    /// The peer is not rdma-init.
    NotOurs,
    /// The peer asks for something that this node does not know.
    Unknown,
    Version,
    Token,
}

/// An invalid peer, with a clause about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Stranger {
    pub fault: Fault,
    pub why: String,
}

pub struct Strangers<'a> {
    say: &'a dyn Fn(&str),
    /// The subject of each line: `preflight: node 0`.
    waiting: &'static str,
    count: u64,
    /// The count in the last report.
    said: u64,
    told: Vec<Fault>,
    /// The last of the invalid peers whose fault helps most.
    telling: Option<Stranger>,
}

impl<'a> Strangers<'a> {
    pub fn new(say: &'a dyn Fn(&str), waiting: &'static str) -> Strangers<'a> {
        Strangers { say, waiting, count: 0, said: 0, told: Vec::new(), telling: None }
    }

    /// Reports the first invalid peer of each fault; after that, the tenth, hundredth, thousandth, and so
    /// on.
    pub fn add(&mut self, stranger: Stranger) {
        self.count += 1;
        let Stranger { fault, why } = &stranger;
        if !self.told.contains(fault) {
            self.told.push(*fault);
            self.said = self.count;
            (self.say)(&format!("{} is still waiting: {why}.", self.waiting));
        } else if is_power_of_ten(self.count) {
            self.said = self.count;
            (self.say)(&format!("{} is still waiting: {}; the last: {why}.", self.waiting, self.counted()));
        }
        if self.telling.as_ref().is_none_or(|known| known.fault <= *fault) {
            self.telling = Some(stranger);
        }
    }

    /// Reports how many invalid peers there were, unless the last line already did.
    pub fn close(&self) {
        if self.count > self.said {
            (self.say)(&format!("{} has rejected {}.", self.waiting, self.counted()));
        }
    }

    /// Returns a clause that says that no node of this job connected to this address, and what connected
    /// instead.
    pub fn instead(&self, own: &str, within: &str) -> String {
        match &self.telling {
            None => format!("the other node did not connect to {own} within {within}"),
            Some(Stranger { why, .. }) if self.count == 1 => {
                format!(
                    "the other node did not connect to {own} within {within}. Another peer connected: {why}"
                )
            }
            Some(Stranger { why, .. }) => {
                format!(
                    "the other node did not connect to {own} within {within}. {} other peers connected, one of them: {why}",
                    self.count
                )
            }
        }
    }

    fn counted(&self) -> String {
        counted(usize::try_from(self.count).unwrap_or(usize::MAX), "invalid connection") + " so far"
    }
}

fn is_power_of_ten(mut number: u64) -> bool {
    while number > 1 && number.is_multiple_of(10) {
        number /= 10;
    }
    number == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_million_invalid_peers_take_a_few_lines() {
        let said = RefCell::new(Vec::new());
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let mut strangers = Strangers::new(&say, "node 0");
        let silent = || Stranger { fault: Fault::Silent, why: "a is silent".into() };
        strangers.add(silent());
        strangers.add(Stranger { fault: Fault::Token, why: "b has another token".into() });
        for _ in 2..1_000_001 {
            strangers.add(silent());
        }
        strangers.close();
        let said = said.borrow();
        let start: Vec<&str> = said.iter().take(3).map(String::as_str).collect();
        assert_eq!(
            start,
            [
                "node 0 is still waiting: a is silent.",
                "node 0 is still waiting: b has another token.",
                "node 0 is still waiting: 10 invalid connections so far; the last: a is silent."
            ]
        );
        assert_eq!(said.len(), 9, "{said:?}");
        assert_eq!(said[8], "node 0 has rejected 1000001 invalid connections so far.");
        let why = strangers.instead("here", "1 s");
        let wanted = "the other node did not connect to here within 1 s. 1000001 other peers connected, one of them: b has";
        assert!(why.starts_with(wanted), "{why}");
    }

    #[test]
    fn zero_or_one_invalid_peer_is_reported_without_a_count() {
        let say = |_: &str| {};
        let mut strangers = Strangers::new(&say, "node 0");
        assert_eq!(strangers.instead("here", "1 s"), "the other node did not connect to here within 1 s");
        strangers.add(Stranger { fault: Fault::Gone, why: "it went".into() });
        let wanted = "the other node did not connect to here within 1 s. Another peer connected: it went";
        assert_eq!(strangers.instead("here", "1 s"), wanted);
    }
}
