//! NCCL's releases and what changed with them.

use serde::{Deserialize, Serialize};

use crate::image::flavor::Flavor;

/// A release of NCCL, or of CUDA: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Version {
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    /// Parses the leading numbers of `2.21.5-1+cuda12.4`; missing numbers count as 0.
    pub fn parse(text: &str) -> Option<Version> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut numbers = text[..end].split('.').map_while(|part| part.parse().ok());
        Some(Version::new(numbers.next()?, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
    }
}

impl Flavor {
    /// Returns the library's name for a sentence: `RCCL 2.22.3`, or `RCCL` if the release is unknown.
    pub(crate) fn of_release(self, release: Option<Version>) -> String {
        release.map_or(self.to_string(), |version| format!("{self} {version}"))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Version, String> {
        Version::parse(&text).ok_or_else(|| format!("{text:?} is not a version"))
    }
}

impl From<Version> for String {
    fn from(version: Version) -> String {
        version.to_string()
    }
}

/// Accepts 32 HCAs instead of 16 (`MAX_IB_DEVS`).
pub const TAKES_32_HCAS: Version = Version::new(2, 19, 0);
/// Combines several ports into one NIC (`NCCL_IB_MERGE_NICS`).
pub const FUSES_NICS: Version = Version::new(2, 20, 0);
/// Also tries `NCCL_NET_PLUGIN` as a file name (`src/net.cc`).
pub const OPENS_PLUGIN_BY_NAME: Version = Version::new(2, 21, 0);
/// Searches the GID table if no index is set, and reads `NCCL_IB_ADDR_*`.
pub const SEARCHES_GIDS: Version = Version::new(2, 21, 0);
/// Combines ports into NICs only if all NICs then have the same number of ports (until
/// [`FUSES_BY_TOPOLOGY`]).
pub const FUSES_ALL_OR_NONE: Version = Version::new(2, 22, 0);
/// Ignores a range without a slash, on which the search crashed before.
pub const CHECKS_RANGE: Version = Version::new(2, 23, 0);
/// Reads `NCCL_CONF_FILE`.
pub const READS_CONF_FILE: Version = Version::new(2, 23, 0);
/// Combines ports into one NIC by their distance (`NCCL_NET_MERGE_LEVEL`).
pub const FUSES_BY_TOPOLOGY: Version = Version::new(2, 24, 0);
/// Reports the state of a running job's ranks (`src/ras`).
pub const HAS_RAS: Version = Version::new(2, 24, 0);
/// Continues if it cannot merge ports into one NIC; before, the job failed.
pub const FUSION_MAY_FAIL: Version = Version::new(2, 26, 0);
/// Skips lines of conf files that start with `#`.
pub const SKIPS_COMMENTS: Version = Version::new(2, 26, 0);
/// Continues the GID search after an empty entry.
pub const TOLERATES_EMPTY_SLOTS: Version = Version::new(2, 26, 0);
/// Accepts a list in `NCCL_NET_PLUGIN`; an empty value means no plugin at all (`src/plugin/net.cc`).
pub const LISTS_PLUGINS: Version = Version::new(2, 27, 0);
/// Uses the Data Direct functions of ConnectX-8 (`NCCL_IB_DATA_DIRECT`).
pub const HAS_DATA_DIRECT: Version = Version::new(2, 27, 0);
/// Uses only interfaces that are `RUNNING`, and `virbr*` last.
pub const NEEDS_RUNNING: Version = Version::new(2, 28, 0);
/// Loads an env plugin (`src/plugin/env.cc`).
pub const READS_ENV_PLUGIN: Version = Version::new(2, 28, 7);
/// From this release to 2.29.7, NCCL inverts the IPv4 subnet check of `NCCL_COMM_ID` (`src/os/linux.cc`,
/// `matchSubnet`).
pub const INVERTS_SUBNET: Version = Version::new(2, 29, 0);
/// Sorts the devices by their PCI addresses (`NCCL_IB_DEVICE_PCI_ORDER`).
pub const SORTS_DEVICES: Version = Version::new(2, 29, 7);
/// Reads `rail` and `plane` in lists, strips carriage returns in conf files, and finds the home directory
/// through `HOME`.
pub const REWROTE_PARSERS: Version = Version::new(2, 30, 0);
/// Combines up to eight ports into one NIC; before, up to four.
pub const FUSES_EIGHT: Version = Version::new(2, 30, 0);
/// Compares all nodes' numbers of NICs (`NCCL_IGNORE_NET_MISMATCH`, `src/init.cc`).
pub const COMPARES_NICS: Version = Version::new(2, 30, 3);
/// Offers GIN, with which GPUs start transfers, only if no ports are merged (until [`GIN_OVER_MERGED`]) and
/// `NCCL_CROSS_NIC` is not 0 (until [`GIN_WITHIN_RAILS`], `src/init.cc`).
pub const RESTRICTS_GIN: Version = Version::new(2, 29, 2);
/// Offers GIN within each rail if `NCCL_CROSS_NIC` is 0.
pub const GIN_WITHIN_RAILS: Version = Version::new(2, 29, 7);
/// Offers GIN over merged ports.
pub const GIN_OVER_MERGED: Version = Version::new(2, 30, 7);
/// Continues over another port of a NIC whose link fails, if `NCCL_IB_RESILIENCY_PORT_FAILOVER` is set.
pub const FAILS_OVER: Version = Version::new(2, 29, 7);
/// Reads `NCCL_IBVERBS_LIB` (`src/misc/ibvsymbols.cc`).
pub const READS_IBVERBS_LIB: Version = Version::new(2, 30, 3);
/// Finds the NIC in the peer's subnet (`NCCL_IB_SUBNET_AWARE_ROUTING`).
pub const ROUTES_BY_SUBNET: Version = Version::new(2, 30, 7);
/// Reads `NCCL_NET_MERGE_POLICY`.
pub const FUSES_RAILS: Version = Version::new(2, 30, 7);

/// Reads the GIDs when it looks for HCAs: an index outside the table then disables the transport for
/// InfiniBand and RoCE instead of failing a connection (seen in the libraries).
pub const READS_GIDS_FIRST: Version = Version::new(2, 31, 0);
/// Uses a variable's default, not 0, if the value is not a number.
pub const REFUSES_WORDS: Version = Version::new(2, 32, 0);

/// One release of each kind, oldest first: if these agree, every release does.
pub const KINDS: &[Version] = &[
    Version::new(2, 18, 3),
    Version::new(2, 19, 3),
    Version::new(2, 20, 5),
    Version::new(2, 21, 5),
    Version::new(2, 22, 3),
    Version::new(2, 23, 4),
    Version::new(2, 24, 3),
    Version::new(2, 25, 1),
    Version::new(2, 26, 2),
    Version::new(2, 27, 3),
    Version::new(2, 28, 3),
    Version::new(2, 29, 7),
    Version::new(2, 30, 7),
    NEWEST,
];

/// A substitute for an unknown version where only a list must be parsed.
pub const NEWEST: Version = Version::new(2, 32, 3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(Version::parse("2.21.5-1+cuda12.4"), Some(Version::new(2, 21, 5)));
        assert!(Version::parse("2.9") < Version::parse("2.19"));
        assert_eq!(Version::parse("12.1"), Version::parse("12.1.0"));
        assert_eq!(Version::parse("latest"), None);
        assert_eq!(Version::parse("2.21.5").unwrap().to_string(), "2.21.5");
    }
}
