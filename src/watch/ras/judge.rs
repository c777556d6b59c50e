//! Judges the ranks from one answer or from two. Pure.
//!
//! Counts that differ are normal for a moment, because some ranks are later than others. A job hangs only
//! if two answers are identical and the counts in them differ. No answer proves that a job is healthy.

use std::collections::BTreeSet;

use super::answer::{
    Answer, Collective, Communicator, CommunicatorId, Launched, LostProcess, Place, Rank, State,
};

/// What the answers show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict<'a> {
    /// RAS has given up on these ranks.
    pub(crate) dead: Vec<Member<'a>>,
    /// These ranks did not answer the last question.
    pub(crate) missing: Vec<Member<'a>>,
    /// Processes without a listed rank that RAS has given up on or that did not answer.
    pub(crate) lost: Vec<&'a LostProcess>,
    /// NCCL reports an error for these ranks, with this code.
    pub(crate) failed: Vec<(Member<'a>, i64)>,
    /// In both answers, these ranks were not in the communicator while others waited in it.
    pub(crate) absent: Vec<Member<'a>>,
    /// Ranks that have launched a collective less often than others, by the size of the communicator,
    /// largest first. With two answers, only ranks that have not launched it in between.
    pub(crate) behind: Vec<Behind<'a>>,
    /// The two answers are identical, and the counts in them differ.
    pub(crate) hangs: bool,
}

/// A rank of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member<'a> {
    pub(crate) rank: &'a Rank,
    pub(crate) size: u32,
    /// Which communicator it is: several may have the same size.
    pub(crate) communicator: CommunicatorId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Behind<'a> {
    pub(crate) collective: &'a Collective,
    pub(crate) size: u32,
    /// How often the others have launched it.
    pub(crate) others: u64,
    /// How often the ranks that are behind have launched it.
    pub(crate) times: u64,
    /// The listed ones of these ranks, and how many there are in total.
    pub(crate) ranks: Vec<Member<'a>>,
    pub(crate) count: usize,
}

impl Verdict<'_> {
    /// Returns whether no rank has a problem, as far as RAS can see.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Verdict::default()
    }

    /// Returns the numbers of the ranks with a fault, in the largest communicator that has one. Of several that are as
    /// large, it is one: the same number is another rank in each of them.
    pub(crate) fn numbers(&self) -> BTreeSet<u32> {
        let failed = self.failed.iter().map(|(member, _)| member);
        let behind = self.behind.iter().flat_map(|behind| &behind.ranks);
        let all = self.dead.iter().chain(&self.missing).chain(failed).chain(&self.absent).chain(behind);
        let all: Vec<&Member> = all.collect();
        let largest = all.iter().map(|member| (member.size, member.communicator)).max();
        let of_largest = all.into_iter().filter(|member| Some((member.size, member.communicator)) == largest);
        of_largest.map(|member| member.rank.number).collect()
    }

    /// Returns whether a second answer, some time later, may show more.
    pub(crate) fn needs_second_look(&self) -> bool {
        !self.behind.is_empty() || !self.missing.is_empty() || !self.lost.is_empty()
    }
}

/// Judges the latest answer, with the help of an earlier one if there is one.
pub(crate) fn judge<'a>(before: Option<&Answer>, now: &'a Answer) -> Verdict<'a> {
    let mut communicators: Vec<&Communicator> = now.communicators.iter().collect();
    communicators.sort_by_key(|communicator| std::cmp::Reverse(communicator.size));
    let in_state = |matters: &dyn Fn(&Communicator) -> bool, is: fn(&Rank) -> bool| {
        // A process is named once, as its rank in the largest communicator.
        let mut known: BTreeSet<&Place> = BTreeSet::new();
        let mut members = Vec::new();
        for communicator in communicators.iter().filter(|communicator| matters(communicator)) {
            for rank in communicator.ranks.iter().filter(|rank| is(rank)) {
                if rank.place.as_ref().is_none_or(|place| known.insert(place)) {
                    members.push(Member { rank, size: communicator.size, communicator: communicator.id });
                }
            }
        }
        members
    };
    let earlier = |communicator: &Communicator| {
        let all = before.map(|before| before.communicators.as_slice()).unwrap_or_default();
        let place = all.binary_search_by_key(&communicator.id, |other| other.id).ok()?;
        all.get(place)
    };
    let in_any = |is| in_state(&|_| true, is);
    let failed = in_any(|rank| matches!(rank.state, State::Failed(_)));
    let code = |member: Member<'a>| match member.rank.state {
        State::Failed(code) => (member, code),
        _ => (member, 0),
    };
    let has_stood = |communicator: &Communicator| earlier(communicator) == Some(communicator);
    let waits = |communicator: &Communicator| {
        communicator.ranks.iter().any(|rank| rank.state == State::Running) && has_stood(communicator)
    };
    let is_unequal = communicators.iter().any(|communicator| !communicator.unequal.is_empty());
    let is_alike =
        before.is_some_and(|before| before.communicators == now.communicators && before.total == now.total);
    Verdict {
        dead: in_any(|rank| rank.state == State::Dead),
        missing: in_any(|rank| rank.state == State::Missing),
        lost: now.lost.iter().collect(),
        failed: failed.into_iter().map(code).collect(),
        absent: in_state(&waits, |rank| rank.state == State::Absent),
        behind: communicators
            .iter()
            .filter(|communicator| before.is_none() || earlier(communicator).is_some())
            .flat_map(|communicator| behind(earlier(communicator), communicator))
            .collect(),
        hangs: is_alike && is_unequal,
    }
}

/// Returns the ranks that are behind in a communicator, and were behind in the earlier answer.
fn behind<'a>(
    earlier: Option<&Communicator>,
    communicator: &'a Communicator,
) -> impl Iterator<Item = Behind<'a>> {
    communicator.unequal.iter().flat_map(move |unequal| {
        let others = unequal.groups.first().map_or(0, |group| group.times);
        let before = earlier.map(|earlier| {
            let place = earlier.unequal.binary_search_by(|other| other.collective.cmp(&unequal.collective));
            let same = place.ok().and_then(|place| earlier.unequal.get(place));
            same.and_then(|same| same.groups.get(1..)).unwrap_or_default()
        });
        unequal.groups.iter().skip(1).filter_map(move |group| {
            let (listed, count) = match before {
                None => (group.listed.clone(), group.ranks),
                Some(before) => still_there(before, group)?,
            };
            let member = |number: &u32| {
                let rank = communicator.rank(*number)?;
                Some(Member { rank, size: communicator.size, communicator: communicator.id })
            };
            Some(Behind {
                collective: &unequal.collective,
                size: communicator.size,
                others,
                times: group.times,
                ranks: listed.iter().filter_map(member).collect(),
                count,
            })
        })
    })
}

/// Returns those of the ranks that were at the same count before, and how many there are.
fn still_there(before: &[Launched], group: &Launched) -> Option<(Vec<u32>, usize)> {
    // The highest count is first.
    let place = before.binary_search_by(|other| group.times.cmp(&other.times)).ok()?;
    let same = before.get(place)?;
    if group.listed.is_empty() || same.listed.is_empty() {
        // The ranks are not listed, so only their number can be compared.
        return (same.ranks == group.ranks).then(|| (group.listed.clone(), group.ranks));
    }
    let stayed: Vec<u32> =
        group.listed.iter().copied().filter(|rank| same.listed.binary_search(rank).is_ok()).collect();
    let count = stayed.len();
    (count > 0).then_some((stayed, count))
}
