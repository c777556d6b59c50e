//! The nodes try the pairs of the schedule, and those of the second tries.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{Known, OWN, Series, Zero};
use crate::preflight::cross::{self, Cross};
use crate::preflight::evidence::{Evidence, Gone, Member as Brought};
use crate::preflight::message::{PARTNERS_AT_ONCE, Partner, ToNode};
use crate::preflight::names;
use crate::preflight::own::VERBS;
use crate::preflight::schedule::Schedule;
use crate::text::duration;

/// How long a round may take, all pairs together, before those who have not told are given up. Their
/// partners give up far earlier.
const ROUND: Duration = Duration::from_secs(120);

/// The longest time for all rounds together.
pub const PROVING: Duration = Duration::from_secs(15 * 60);

impl Zero<'_> {
    /// Has all nodes that came try the pairs of the schedule.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn prove(&mut self, own: BorrowedFd) -> Result<(), String> {
        // Their names are not needed any more to tell the nodes who is missing.
        self.missing = None;
        self.tell_apart();
        let present: Vec<u32> = self.members.keys().copied().collect();
        let schedule = Schedule { nodes: present.len().try_into().unwrap_or(0), extent: self.terms.extent };
        let count = schedule.rounds().try_into().unwrap_or(u16::MAX);
        self.heard.evidence = self.evidence(count);
        let rounds = (0..schedule.rounds()).map(|round| {
            let pairs = schedule.pairs(round);
            let index = |place: u32| present.get(place as usize).copied();
            pairs.filter_map(|(low, high)| Some((index(low)?, index(high)?))).collect()
        });
        let rounds: Vec<Vec<(u32, u32)>> = rounds.collect();
        self.series(0, &rounds, own)
    }

    /// Whoever came second with the name of a host has got its index behind that name. So gets who
    /// came first, or nobody would know which of them is meant.
    fn tell_apart(&mut self) {
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

    /// What is known before the first pair: who has come, and who has not.
    fn evidence(&self, rounds: u16) -> Evidence {
        let brought = |(place, known): (usize, &Option<Known>)| {
            let of_launcher = self.terms.names.get(place).filter(|name| !name.is_empty()).cloned();
            match known {
                Some(Known { name, rails, .. }) => {
                    Brought { name: name.clone(), of_launcher, rails: rails.clone() }
                }
                None => {
                    let away = u32::try_from(place).ok().and_then(|node| self.away.get(&node));
                    let name = away.map(|(known, _)| known.name.clone()).or_else(|| of_launcher.clone());
                    Brought { name: name.unwrap_or_default(), of_launcher, rails: Vec::new() }
                }
            }
        };
        let members = self.heard.nodes.iter().enumerate().map(brought).collect();
        let mut evidence = Evidence::new(members, rounds);
        let within = duration(self.terms.wait);
        for node in self.missing() {
            let away = self.away.get(&node).map(|(_, how)| how.clone());
            evidence.lose(node, away.unwrap_or_else(|| Gone::NeverCame(within.clone())));
        }
        evidence
    }

    /// Has nodes try these pairs, round by round, beginning with a round of this number.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn series(&mut self, first: u16, rounds: &[Vec<(u32, u32)>], own: BorrowedFd) -> Result<(), String> {
        let mut orders: BTreeMap<u32, Vec<Partner>> = BTreeMap::new();
        for (number, pairs) in rounds.iter().enumerate() {
            let round = first.saturating_add(number.try_into().unwrap_or(u16::MAX));
            for (low, high) in pairs {
                for (node, with) in [(low, high), (high, low)] {
                    let partner = self.partner(round, *with);
                    orders.entry(*node).or_default().extend(partner);
                }
            }
        }
        self.order(first, rounds.len(), orders, own)
    }

    /// Has a few nodes try their rails with other ones, in a round of this number, where there are several
    /// rails.
    ///
    /// # Errors
    /// As for [`Zero::meet`].
    pub fn cross(&mut self, round: u16, own: BorrowedFd) -> Result<(), String> {
        let is_verbs = |known: &Known| known.transport == VERBS;
        if !self.heard.nodes.iter().flatten().all(is_verbs) {
            return Ok(());
        }
        let pairs = cross::pairs(&self.heard.evidence);
        let mut orders: BTreeMap<u32, Vec<Partner>> = BTreeMap::new();
        for Cross { nodes: [low, high], shift } in &pairs {
            for (node, with) in [(low, high), (high, low)] {
                let partner = self.partner(round, *with).map(|partner| Partner { shift: *shift, ..partner });
                orders.entry(*node).or_default().extend(partner);
            }
        }
        self.heard.evidence.begin_crossing(round, pairs);
        self.order(round, 1, orders, own)
    }

    /// Tells nodes whom to try, in so many rounds from this one on, and hears what comes of it.
    fn order(
        &mut self,
        first: u16,
        rounds: usize,
        orders: BTreeMap<u32, Vec<Partner>>,
        own: BorrowedFd,
    ) -> Result<(), String> {
        let started = Instant::now();
        let number = u32::try_from(rounds).unwrap_or(u32::MAX);
        let end = started + ROUND.saturating_mul(number).clamp(ROUND, PROVING);
        self.series = Series { first, rounds, pairs: orders.values().map(Vec::len).sum::<usize>() / 2 };
        self.show_progress_soon();
        for (node, pairs) in orders {
            let job = self.job;
            let Some(member) = self.members.get_mut(&node) else { continue };
            member.at_work = true;
            member.round = first;
            member.owed.extend(pairs.iter().map(|pair| (pair.round, pair.node)));
            let mut chunks = pairs.chunks(PARTNERS_AT_ONCE).peekable();
            while let Some(pairs) = chunks.next() {
                let (pairs, more) = (pairs.to_vec(), chunks.peek().is_some());
                // A connection that is broken is noticed where it is heard.
                let _ = member.channel.queue(&ToNode::Prove { job, pairs, more });
            }
        }
        tracing::debug!("preflight: the rounds have begun");
        while self.members.values().any(|member| member.at_work) && Instant::now() < end {
            if self.hear(end, own)? {
                return Err(OWN.to_owned());
            }
            self.tell_working();
        }
        for member in self.members.values_mut() {
            member.at_work = false;
        }
        self.heard.proving += started.elapsed();
        Ok(())
    }

    fn partner(&self, round: u16, node: u32) -> Option<Partner> {
        let member = self.members.get(&node)?;
        let name = self.heard.nodes.get(node as usize)?.as_ref()?.name.clone();
        Some(Partner { round, node, name, address: member.address, port: member.port, shift: 0 })
    }
}
