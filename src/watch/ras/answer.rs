//! The answer of a RAS server as plain data: one type for all formats.

use std::borrow::Cow;
use std::net::IpAddr;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The version of the NCCL that answers, such as `2.28.9`.
    pub(crate) release: String,
    /// How many communicators the job has, including those that the text only counts.
    pub(crate) total: usize,
    /// In the order of their ids. The text lists only those for which RAS reports something.
    pub(crate) communicators: Vec<Communicator>,
    /// Processes that RAS cannot reach. Only the text lists them; in JSON, each of them is a rank.
    pub(crate) lost: Vec<LostProcess>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Communicator {
    pub(crate) id: CommunicatorId,
    pub(crate) size: u32,
    /// The listed ranks, in ascending order. The text lists only those that differ from most others.
    pub(crate) ranks: Vec<Rank>,
    /// The collectives that some ranks have launched more often than others, in ascending order.
    pub(crate) unequal: Vec<Unequal>,
}

/// NCCL's hash, and two more hashes that make it unique; the text does not have them, so they are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CommunicatorId(pub(crate) [u64; 3]);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) number: u32,
    /// `None` if RAS itself does not know.
    pub(crate) place: Option<Place>,
    pub(crate) state: State,
    /// How many collectives of each kind the rank has launched. The text has only the kinds that differ.
    pub(crate) counts: Vec<(Collective, u64)>,
}

/// Where a rank runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) host: Host,
    pub(crate) pid: u32,
    /// The number of the GPU as the process counts its GPUs.
    pub(crate) gpu: i32,
}

/// RAS identifies hosts by the addresses of their bootstrap interfaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Host {
    Address(IpAddr),
    Other(Box<str>),
}

impl From<&str> for Host {
    fn from(text: &str) -> Host {
        text.parse().map_or_else(|_| Host::Other(text.into()), Host::Address)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Initializing,
    Running,
    /// `ncclCommFinalize` or `ncclCommDestroy` was called.
    Finalizing,
    /// `ncclCommAbort` was called.
    Aborting,
    /// NCCL has an error, with this code (`ncclResult_t`).
    Failed(i64),
    /// The process answers but is not in the communicator: it has left, or has not joined yet.
    Absent,
    /// The process did not answer in time.
    Missing,
    /// RAS gave up on the process after it could not reach it for a minute.
    Dead,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostProcess {
    pub(crate) host: Host,
    pub(crate) pid: u32,
    pub(crate) is_dead: bool,
}

/// The kind of a collective, such as `AllReduce`. Versions before 2.26 count all kinds together:
/// `collective`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Collective(Cow<'static, str>);

impl Collective {
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Collective {
    fn from(name: &str) -> Collective {
        const KNOWN: [&str; 6] =
            ["AllGather", "AllReduce", "Broadcast", "Reduce", "ReduceScatter", "collective"];
        // A separate copy for each rank of a large job would use much memory.
        let known = KNOWN.iter().find(|known| **known == name);
        Collective(known.map_or_else(|| Cow::Owned(name.to_owned()), |known| Cow::Borrowed(*known)))
    }
}

/// A collective and its different counts, highest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unequal {
    pub(crate) collective: Collective,
    pub(crate) groups: Vec<Launched>,
}

/// Ranks that have launched a collective equally often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launched {
    pub(crate) times: u64,
    pub(crate) ranks: usize,
    /// The listed ones of these ranks, in ascending order; all of them, or none.
    pub(crate) listed: Vec<u32>,
}

impl Communicator {
    pub(crate) fn rank(&self, number: u32) -> Option<&Rank> {
        let place = self.ranks.binary_search_by_key(&number, |rank| rank.number).ok()?;
        self.ranks.get(place)
    }

    /// Finds the collectives whose counts differ between the ranks, which must all be listed.
    pub(crate) fn compare_counts(&mut self) {
        let mut all: Vec<(&Collective, u64, u32)> = Vec::new();
        for rank in &self.ranks {
            all.extend(rank.counts.iter().map(|(collective, times)| (collective, *times, rank.number)));
        }
        all.sort_unstable_by(|one, other| {
            (one.0, std::cmp::Reverse(one.1), one.2).cmp(&(other.0, std::cmp::Reverse(other.1), other.2))
        });
        let mut unequal = Vec::new();
        for of_one in all.chunk_by(|one, next| one.0 == next.0) {
            let groups = of_one.chunk_by(|one, next| one.1 == next.1).filter_map(|group| {
                let (_, times, _) = group.first()?;
                let listed: Vec<u32> = group.iter().map(|(_, _, rank)| *rank).collect();
                Some(Launched { times: *times, ranks: listed.len(), listed })
            });
            let groups: Vec<Launched> = groups.collect();
            if let Some((collective, ..)) = of_one.first()
                && groups.len() > 1
            {
                unequal.push(Unequal { collective: (*collective).clone(), groups });
            }
        }
        self.unequal = unequal;
    }
}
