//! Has the nodes test the pairs of the schedule, and those of the retries.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::ledger::Half;
use super::telling::NAMED;
use super::{OWN_PROCESS_EXITED, Series, Zero};
use crate::preflight::judge::bisection;
use crate::preflight::judge::cross::{self, Cross};
use crate::preflight::judge::culprit;
use crate::preflight::judge::evidence::{Evidence, Gone, Member};
use crate::preflight::judge::words;
use crate::preflight::meet::message::{Order, PARTNERS_AT_ONCE, Partner, Secret, ToNode, Work};
use crate::preflight::meet::schedule::{Extent, Schedule};
use crate::preflight::who::names;
use crate::preflight::who::scheduler;
use crate::text::{condensed_to, counted, duration};

impl Zero<'_> {
    /// Has all nodes that joined test the pairs of the schedule.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn prove(&mut self, own: BorrowedFd) -> anyhow::Result<()> {
        // The names of missing nodes are no longer needed.
        self.missing = None;
        self.disambiguate_names();
        let present: Vec<u32> = self.hub.members().keys().copied().collect();
        let schedule = Schedule { nodes: present.len().try_into().unwrap_or(0), extent: self.terms.extent };
        let count = schedule.rounds().try_into().unwrap_or(u16::MAX);
        self.heard.evidence = self.evidence(count);
        let evidence = &self.heard.evidence;
        // No rail of one kind reaches one of the other kind, and its node would be blamed.
        if culprit::is_mixed(evidence) {
            return Ok(());
        }
        let wrong = evidence.wrong_addresses();
        let duplicates = wrong.duplicates().iter().map(|shared| words::duplicate(evidence, shared));
        let loopbacks = wrong.loopbacks().iter().map(|own| words::loopback(evidence, own));
        for clause in duplicates.chain(loopbacks) {
            (self.terms.say)(&format!("preflight: {clause}"));
        }
        let rounds = (0..schedule.rounds()).map(|round| {
            let pairs = schedule.pairs(round);
            let index = |place: u32| present.get(place as usize).copied();
            pairs.filter_map(|(low, high)| Some((index(low)?, index(high)?))).collect()
        });
        let rounds: Vec<Vec<(u32, u32)>> = rounds.collect();
        let time = self.terms.times.first(&schedule);
        if schedule.extent == Extent::Full {
            let pairs: usize = rounds.iter().map(Vec::len).sum();
            (self.terms.say)(&format!(
                "preflight: the nodes try {} in {}, which takes {} at most",
                counted(pairs, "pair"),
                counted(rounds.len(), "round"),
                duration(Duration::from_secs(time.as_secs()))
            ));
        }
        self.series(0, &rounds, time, own)
    }

    /// Adds the index to more names. If two nodes join from hosts with the same name, the second one's
    /// name already ends with its index. This adds the first one's index as well, so that each name
    /// means one node.
    fn disambiguate_names(&mut self) {
        let nodes = &mut self.heard.nodes;
        let numbered = nodes.iter().flatten().filter(|known| names::is_numbered(&known.name));
        let shared: HashSet<String> = numbered.map(|known| names::host(&known.name).to_owned()).collect();
        for (node, known) in nodes.iter_mut().enumerate() {
            if let Some(known) = known.as_mut().filter(|known| shared.contains(&known.name)) {
                let name = names::numbered(&known.name, node);
                self.heard.compared.rename(&known.name, &name);
                known.name = name;
            }
        }
    }

    /// Returns what is known before the first pair: which nodes joined, and which did not.
    fn evidence(&self, rounds: u16) -> Evidence {
        let claims: Vec<Option<&str>> =
            self.heard.nodes.iter().map(|known| Some(names::host(&known.as_ref()?.name))).collect();
        let mut of_launcher =
            scheduler::names(self.terms.names, self.terms.are_names_certain, &claims).into_iter();
        let brought = |(place, known): (usize, &Option<Member>)| {
            let shown = self.terms.names.get(place).filter(|name| !name.is_empty());
            let of_launcher = of_launcher.next().unwrap_or_default();
            match known {
                Some(known) => Member { of_launcher, ..known.clone() },
                None => {
                    let away = u32::try_from(place).ok().and_then(|node| self.away.get(&node));
                    let name = away.map(|(known, _)| known.name.clone()).or_else(|| shown.cloned());
                    Member { name: name.unwrap_or_default(), of_launcher, ..Member::default() }
                }
            }
        };
        let members = self.heard.nodes.iter().enumerate().map(brought).collect();
        let mut evidence = Evidence::new(members, rounds);
        evidence.meet_at(&self.terms.meet, self.terms.unresolved);
        for (node, nodes) in &self.heard.contested {
            evidence.contest(*node, nodes.clone());
        }
        let within = duration(self.terms.wait);
        let missing = self.missing().count();
        for node in self.missing() {
            if let Some((_, how)) = self.away.get(&node) {
                evidence.lose(node, how.clone());
                continue;
            }
            if let Some(why) = self.heard.refused.explain(node, missing) {
                evidence.explain(node, why);
            }
            evidence.lose(node, Gone::NeverJoined(within.clone()));
        }
        evidence
    }

    /// Has nodes test pairs again, round by round, starting with round `first`, as far as there is
    /// time. Returns how many rounds there were.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn again(
        &mut self,
        first: u16,
        rounds: &[Vec<(u32, u32)>],
        own: BorrowedFd,
    ) -> anyhow::Result<usize> {
        let times = self.terms.times;
        let until = *self.again_until.get_or_insert_with(|| Instant::now() + times.again());
        let count = times.rounds_in(until.saturating_duration_since(Instant::now())).min(rounds.len());
        let time = times.rounds(count.try_into().unwrap_or(u32::MAX));
        self.series(first, rounds.get(..count).unwrap_or_default(), time, own)?;
        Ok(count)
    }

    fn series(
        &mut self,
        first: u16,
        rounds: &[Vec<(u32, u32)>],
        time: Duration,
        own: BorrowedFd,
    ) -> anyhow::Result<()> {
        let numbered = rounds.iter().enumerate().flat_map(|(number, pairs)| {
            let round = first.saturating_add(number.try_into().unwrap_or(u16::MAX));
            pairs.iter().map(move |(low, high)| (round, *low, *high))
        });
        let orders = self.ledger.order(numbered);
        self.heard.evidence.schedule(self.ledger.open());
        self.carry_out(first, rounds.len(), orders, |_, _| Work::Rails, time, own)
    }

    /// Has a few nodes test their rails with different rails, in this round, if there are several
    /// rails.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn cross(&mut self, round: u16, own: BorrowedFd) -> anyhow::Result<()> {
        if !self.heard.nodes.iter().flatten().all(|known| known.is_verbs) {
            return Ok(());
        }
        let pairs = cross::pairs(&self.heard.evidence);
        let orders =
            self.ledger.order(pairs.iter().map(|Cross { nodes: [low, high], .. }| (round, *low, *high)));
        let shifts: BTreeMap<[u32; 2], u16> = pairs.iter().map(|one| (one.nodes, one.shift)).collect();
        let work = |node: u32, with: u32| {
            let shift = shifts.get(&[node.min(with), node.max(with)]);
            Work::Crosswise(shift.copied().unwrap_or_default())
        };
        self.heard.evidence.begin_crossing(round, pairs);
        self.carry_out(round, 1, orders, work, self.terms.times.rounds(1), own)
    }

    /// Has all healthy nodes move data at once, each with the node that is half of the job away.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn together(&mut self, own: BorrowedFd) -> anyhow::Result<()> {
        let pairs = bisection::pairs(&self.heard.evidence);
        let round = bisection::ROUND;
        let orders = self.ledger.order(pairs.iter().map(|(low, high)| (round, *low, *high)));
        self.heard.evidence.begin_together(&pairs);
        self.carry_out(round, 1, orders, |_, _| Work::Together, self.terms.times.rounds(1), own)
    }

    /// Assigns pairs to nodes in this many rounds, starting with round `first`, and receives the
    /// results.
    fn carry_out(
        &mut self,
        first: u16,
        rounds: usize,
        orders: BTreeMap<u32, Vec<Half>>,
        work: impl Fn(u32, u32) -> Work,
        time: Duration,
        own: BorrowedFd,
    ) -> anyhow::Result<()> {
        let started = Instant::now();
        self.series = Series { first, rounds, pairs: self.ledger.open() };
        self.show_progress_soon();
        for (node, halves) in orders {
            for halves in halves.chunks(PARTNERS_AT_ONCE) {
                let partner = |(round, with): &Half| {
                    let secret = self.secrets.of(*round, node, *with);
                    Some(Partner { work: work(node, *with), secret, ..self.partner(*round, *with)? })
                };
                let pairs = halves.iter().filter_map(partner).collect();
                let each_ms = self.terms.times.each.as_millis().try_into().unwrap_or(u64::MAX);
                let order = Order { first, each_ms, pairs };
                self.hub.send(node, &ToNode::Prove(order));
            }
        }
        tracing::debug!("preflight: the rounds have begun");
        let end = started.checked_add(time);
        while self.ledger.is_waiting() && end.is_none_or(|end| Instant::now() < end) {
            if self.hear(end.unwrap_or(self.next_word), own)? {
                bail!(OWN_PROCESS_EXITED);
            }
            self.update_working_nodes();
        }
        let over = self.terms.times.over_after(started.elapsed());
        self.close(first.saturating_add(over.try_into().unwrap_or(u16::MAX)));
        self.heard.proving += started.elapsed();
        Ok(())
    }

    /// Stops waiting. `due` is the first round that may still be in progress.
    fn close(&mut self, due: u16) {
        let late: Vec<String> =
            self.ledger.waits_for().map(|(_, node)| self.heard.evidence.name(node)).collect();
        if !late.is_empty() {
            let names = condensed_to(&late, NAMED);
            (self.terms.say)(&format!(
                "preflight: the time of these rounds is over, so node 0 no longer waits for {names}"
            ));
        }
        self.ledger.close(due);
    }

    /// Records what the nodes owe, now that node 0 waits for nothing more.
    pub fn settle(&mut self) {
        let debts = self.ledger.debts().collect();
        self.heard.evidence.close(debts);
    }

    fn partner(&self, round: u16, node: u32) -> Option<Partner> {
        let member = &self.hub.members().get(&node)?.peer;
        let name = self.heard.nodes.get(node as usize)?.as_ref()?.name.clone();
        Some(Partner {
            round,
            node,
            name,
            address: member.address,
            port: member.port,
            secret: Secret::default(),
            work: Work::Rails,
            is_again: self.heard.evidence.is_again(round),
        })
    }
}
