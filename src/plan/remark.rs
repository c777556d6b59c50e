//! What deciding has shown besides the settings, as data. `crate::findings` has the words.

use crate::fabric::KeptRails;
use crate::fabric::interface::InterfaceChoice;
use crate::profiles::WrongConstant;

/// What replaces a published index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// Another index.
    Index(u32),
    /// None, because NCCL finds this index on every HCA.
    Found(u32),
    /// None, because each HCA needs another one, and NCCL finds it.
    FoundOnEach,
    /// None, because any would be wrong on a used HCA.
    Nothing,
}

/// Worth reporting, and not visible in the settings and the ports alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// HCAs that carry a default route, and are rails anyway.
    DefaultRouteRails(KeptRails),
    /// RoCE ports, by their names, without a GID of an address of this container.
    WithoutOwnGid(Vec<String>),
    /// No index is right for every port. `index` is right for `agreeing` of `of`, and not for
    /// the `rest`, which are left out if it `is_set`.
    GidSlotsDiffer { index: u32, agreeing: usize, of: usize, rest: Vec<String>, is_set: bool },
    /// The published index is not right here.
    PublishedGidDiffers { published: String, instead: Instead },
    /// The platform's variable `source` holds what `variable` cannot be.
    PlatformValueWrong { variable: String, source: String, value: String, wrong: WrongConstant },
    /// More ports than this release takes.
    TooManyHcas { usable: usize, most: usize },
    /// The published list of HCAs does not select those to use.
    PublishedHcasDiffer(String),
    /// The published interface is another than the one that was chosen.
    PublishedInterfaceDiffers { published: String, chosen: InterfaceChoice },
    /// Nothing shows which interface leads to the other nodes, not even the published one.
    NoInterface { published: Option<String> },
}
