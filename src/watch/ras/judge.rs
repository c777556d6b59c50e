//! What is wrong with the ranks, by one answer or by two. Pure.
//!
//! Counts that differ are normal for a moment: a rank comes later than others. Only if two answers are
//! alike, and the counts differ, a job hangs. No answer proves that a job is well.

use std::collections::BTreeSet;

use super::answer::{Answer, Collective, Communicator, Launched, LostProcess, Place, Rank, State};

/// What the answers show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict<'a> {
    /// RAS has given them up.
    pub(crate) dead: Vec<Member<'a>>,
    /// They did not answer the last question.
    pub(crate) missing: Vec<Member<'a>>,
    /// Processes that are not known by a rank, in both of these ways.
    pub(crate) lost: Vec<&'a LostProcess>,
    /// NCCL has an error there, with this code.
    pub(crate) failed: Vec<(Member<'a>, i64)>,
    /// They have not been in the communicator in both answers, while others wait in it.
    pub(crate) absent: Vec<Member<'a>>,
    /// Ranks that have launched a collective less often than others, by the size of the communicator,
    /// the largest first. With two answers: only if they have not launched it since.
    pub(crate) behind: Vec<Behind<'a>>,
    /// Two answers are alike, and the counts differ.
    pub(crate) hangs: bool,
}

/// A rank of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member<'a> {
    pub(crate) rank: &'a Rank,
    pub(crate) size: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Behind<'a> {
    pub(crate) collective: &'a Collective,
    pub(crate) size: u32,
    /// How often the others have launched it.
    pub(crate) others: u64,
    /// How often the ranks that are behind have launched it.
    pub(crate) times: u64,
    /// Those that are listed, and how many there are.
    pub(crate) ranks: Vec<Member<'a>>,
    pub(crate) count: usize,
}

impl Verdict<'_> {
    /// Returns whether nothing is wrong with any rank, as far as RAS can see.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Verdict::default()
    }

    /// Returns whether a second answer, some time later, can show more.
    pub(crate) fn needs_second_look(&self) -> bool {
        !self.behind.is_empty() || !self.missing.is_empty() || !self.lost.is_empty()
    }
}

/// Judges the last answer, with the help of one that came some time before it.
pub(crate) fn judge<'a>(before: Option<&Answer>, now: &'a Answer) -> Verdict<'a> {
    let mut communicators: Vec<&Communicator> = now.communicators.iter().collect();
    communicators.sort_by_key(|communicator| std::cmp::Reverse(communicator.size));
    let in_state = |matters: &dyn Fn(&Communicator) -> bool, is: fn(&Rank) -> bool| {
        // A process is named once, by its rank in the largest communicator.
        let mut known: BTreeSet<&Place> = BTreeSet::new();
        let mut members = Vec::new();
        for communicator in communicators.iter().filter(|communicator| matters(communicator)) {
            for rank in communicator.ranks.iter().filter(|rank| is(rank)) {
                if rank.place.as_ref().is_none_or(|place| known.insert(place)) {
                    members.push(Member { rank, size: communicator.size });
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

/// Returns the ranks that are behind in a communicator, and were so in the earlier answer.
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
            let member =
                |number: &u32| Some(Member { rank: communicator.rank(*number)?, size: communicator.size });
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

/// Returns those of the ranks that were as far behind before, and how many they are.
fn still_there(before: &[Launched], group: &Launched) -> Option<(Vec<u32>, usize)> {
    // The highest count comes first.
    let place = before.binary_search_by(|other| group.times.cmp(&other.times)).ok()?;
    let same = before.get(place)?;
    if group.listed.is_empty() || same.listed.is_empty() {
        // It is not known which ranks they are.
        return (same.ranks == group.ranks).then(|| (group.listed.clone(), group.ranks));
    }
    let stayed: Vec<u32> =
        group.listed.iter().copied().filter(|rank| same.listed.binary_search(rank).is_ok()).collect();
    let count = stayed.len();
    (count > 0).then_some((stayed, count))
}
