//! The ranges of numbers that NCCL's variables accept.

use super::version::Version;
use crate::image::flavor::Flavor;

/// A variable that NCCL reads as an integer (`ncclLoadParam`).
pub(crate) struct Number {
    pub(crate) variable: &'static str,
    least: i64,
    pub(crate) most: i64,
    pub(crate) limit: RangeLimit,
}

/// Why the range ends at its limit.
pub(crate) enum RangeLimit {
    Unknown,
    /// The field has this many bits.
    Bits(u32),
    Because(&'static str),
    /// This number lets the library choose.
    Choice(i64),
    /// The library's tables hold no more.
    Room(i64),
}

const fn number(variable: &'static str, least: i64, most: i64, limit: RangeLimit) -> Number {
    Number { variable, least, most, limit }
}

const ANY: RangeLimit = RangeLimit::Unknown;

/// The variables that users commonly set, and fields of the queue pair and of the address vector (InfiniBand
/// specification, modify QP; `ibv_modify_qp`).
pub(crate) const NUMBERS: &[Number] = &[
    number("NCCL_BUFFSIZE", 0, i64::MAX, ANY),
    number("NCCL_CROSS_NIC", 0, 2, RangeLimit::Choice(2)),
    number("NCCL_CUMEM_ENABLE", -2, 1, RangeLimit::Choice(-2)),
    number("NCCL_DMABUF_ENABLE", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_ADAPTIVE_ROUTING", -2, 1, RangeLimit::Choice(-2)),
    number("NCCL_IB_AR_THRESHOLD", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_DATA_DIRECT", 0, 2, RangeLimit::Because("0, 1 and 2 have a meaning")),
    number("NCCL_IB_DISABLE", i64::MIN, i64::MAX, ANY),
    // The finding `gid` reports a larger index.
    number("NCCL_IB_GID_INDEX", -1, i64::MAX, ANY),
    number("NCCL_IB_MERGE_NICS", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_MERGE_VFS", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_FIFO_TC", -1, 255, RangeLimit::Bits(8)),
    number("NCCL_IB_PCI_RELAXED_ORDERING", 0, 2, RangeLimit::Choice(2)),
    number("NCCL_IB_PKEY", 0, 65535, RangeLimit::Because("it is an index into a table")),
    number("NCCL_IB_QPS_PER_CONNECTION", 1, 128, RangeLimit::Room(128)),
    number("NCCL_IB_RETRY_CNT", 0, 7, RangeLimit::Bits(3)),
    number("NCCL_IB_ROCE_VERSION_NUM", 1, 2, RangeLimit::Because("there are RoCE v1 and v2")),
    number("NCCL_IB_SL", 0, 15, RangeLimit::Bits(4)),
    number("NCCL_IB_SPLIT_DATA_ON_QPS", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_TC", 0, 255, RangeLimit::Bits(8)),
    number("NCCL_IB_TIMEOUT", 0, 31, RangeLimit::Bits(5)),
    number("NCCL_IB_USE_INLINE", i64::MIN, i64::MAX, ANY),
    number("NCCL_IGNORE_CPU_AFFINITY", i64::MIN, i64::MAX, ANY),
    number("NCCL_MAX_CTAS", 0, i64::MAX, ANY),
    number("NCCL_MAX_NCHANNELS", 0, i64::MAX, ANY),
    number("NCCL_MIN_CTAS", 0, i64::MAX, ANY),
    number("NCCL_MIN_NCHANNELS", 0, i64::MAX, ANY),
    number("NCCL_NET_GDR_READ", i64::MIN, i64::MAX, ANY),
    number("NCCL_NSOCKS_PERTHREAD", i64::MIN, i64::MAX, ANY),
    number("NCCL_NTHREADS", 0, i64::MAX, ANY),
    number("NCCL_NVLS_ENABLE", 0, 2, RangeLimit::Choice(2)),
    number("NCCL_P2P_DISABLE", i64::MIN, i64::MAX, ANY),
    number("NCCL_P2P_NET_CHUNKSIZE", 0, i64::MAX, ANY),
    number("NCCL_PXN_DISABLE", i64::MIN, i64::MAX, ANY),
    number("NCCL_SHM_DISABLE", i64::MIN, i64::MAX, ANY),
    number("NCCL_SOCKET_NTHREADS", i64::MIN, i64::MAX, ANY),
];

/// Since this release the default is -1, which means no choice.
const TC_AND_SL_UNSET: Version = Version::new(2, 26, 0);

impl Number {
    fn least(&self, release: Version) -> i64 {
        let may_be_unset =
            ["NCCL_IB_TC", "NCCL_IB_SL"].contains(&self.variable) && release >= TC_AND_SL_UNSET;
        if may_be_unset { -1 } else { self.least }
    }

    /// Returns whether a release accepts this number.
    pub(crate) fn is_in_range(&self, value: i64, release: Version) -> bool {
        (self.least(release)..=self.most).contains(&value)
    }

    /// Returns the range as text: `0 to 7 (the field has 3 bits)`.
    pub(crate) fn range(&self, release: Version, library: Flavor) -> String {
        let least = self.least(release);
        let range = if self.most == i64::MAX {
            format!("{least} or more")
        } else {
            format!("{least} to {}", self.most)
        };
        match self.limit {
            RangeLimit::Unknown => range,
            RangeLimit::Bits(bits) => format!("{range} (the field has {bits} bits)"),
            RangeLimit::Because(why) => format!("{range} ({why})"),
            RangeLimit::Choice(number) => format!("{range} ({number} lets {library} choose)"),
            RangeLimit::Room(most) => format!("{range} ({library} has room for {most})"),
        }
    }
}

/// Returns the variable with this name if its value is a number.
pub(crate) fn find(variable: &str) -> Option<&'static Number> {
    NUMBERS.iter().find(|number| number.variable == variable)
}
