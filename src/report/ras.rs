//! Writes what NCCL's RAS reports about the ranks, for programs.

use serde::Serialize;

use crate::text::{shortened, visible};
use crate::watch::ras::judge::{Behind, Member, Verdict};
use crate::watch::ras::names::Names;

/// The object `ras` of `status --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The sentence for people.
    pub(crate) message: String,
    /// Whether RAS has answered. If not, the fields below mean nothing.
    answered: bool,
    hangs: bool,
    dead: Vec<RankOfReport>,
    missing: Vec<RankOfReport>,
    failed: Vec<RankOfReport>,
    absent: Vec<RankOfReport>,
    behind: Vec<BehindOfReport>,
}

#[derive(Debug, Serialize)]
struct RankOfReport {
    rank: u32,
    /// The number of ranks in its communicator.
    of: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// NCCL's error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<i64>,
}

#[derive(Debug, Serialize)]
struct BehindOfReport {
    collective: String,
    launched: u64,
    others: u64,
    /// How many ranks are behind; the text of older NCCL versions does not list all of them.
    count: usize,
    ranks: Vec<RankOfReport>,
}

impl Report {
    pub(crate) fn without_answer(message: String) -> Report {
        Report {
            message,
            answered: false,
            ..Report::of(String::new(), &Verdict::default(), &Names::default())
        }
    }

    pub(crate) fn of(message: String, verdict: &Verdict, names: &Names) -> Report {
        let rank = |member: &Member| one(member, names);
        let all = |members: &[Member]| members.iter().map(rank).collect();
        let failed = verdict.failed.iter();
        Report {
            message,
            answered: true,
            hangs: verdict.hangs,
            dead: all(&verdict.dead),
            missing: all(&verdict.missing),
            failed: failed
                .map(|(member, code)| RankOfReport { error: Some(*code), ..rank(member) })
                .collect(),
            absent: all(&verdict.absent),
            behind: verdict
                .behind
                .iter()
                .map(|behind| {
                    let Behind { collective, others, times, ranks, count, .. } = behind;
                    BehindOfReport {
                        collective: visible(&shortened(collective.name())),
                        launched: *times,
                        others: *others,
                        count: *count,
                        ranks: all(ranks),
                    }
                })
                .collect(),
        }
    }
}

fn one(member: &Member, names: &Names) -> RankOfReport {
    let place = member.rank.place.as_ref();
    RankOfReport {
        rank: member.rank.number,
        of: member.size,
        host: place.map(|place| names.name(&place.host)),
        gpu: place.map(|place| place.gpu),
        pid: place.map(|place| place.pid),
        error: None,
    }
}
