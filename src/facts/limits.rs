//! Resource limits: getrlimit(2).

use nix::sys::resource::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

/// The limits of this process; a field is `None` if the kernel does not report it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessLimits {
    /// The most bytes that may be pinned.
    pub memlock: Option<Limit>,
    /// The most open files.
    pub nofile: Option<Limit>,
    /// The most bytes of stack.
    pub stack: Option<Limit>,
}

/// A soft and a hard limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub soft: Amount,
    pub hard: Amount,
}

/// A number or no limit; in JSON, a number or `"unlimited"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    Limited(u64),
    Unlimited(Unlimited),
}

/// The word for no limit, the same as in the output of `ulimit -l`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unlimited {
    #[serde(rename = "unlimited")]
    Unlimited,
}

impl Amount {
    pub const UNLIMITED: Amount = Amount::Unlimited(Unlimited::Unlimited);

    /// Converts the kernel's number; its largest value means no limit.
    pub fn from_rlim(rlim: u64) -> Amount {
        if rlim == nix::libc::RLIM_INFINITY { Amount::UNLIMITED } else { Amount::Limited(rlim) }
    }

    /// Returns the number for setrlimit(2).
    pub fn to_rlim(self) -> u64 {
        match self {
            Amount::Limited(number) => number,
            Amount::Unlimited(_) => nix::libc::RLIM_INFINITY,
        }
    }
}

pub(crate) fn read() -> ProcessLimits {
    ProcessLimits {
        memlock: limit(Resource::RLIMIT_MEMLOCK),
        nofile: limit(Resource::RLIMIT_NOFILE),
        stack: limit(Resource::RLIMIT_STACK),
    }
}

fn limit(resource: Resource) -> Option<Limit> {
    let (soft, hard) = getrlimit(resource).ok()?;
    Some(Limit { soft: Amount::from_rlim(soft), hard: Amount::from_rlim(hard) })
}
