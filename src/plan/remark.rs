//! What deciding has shown besides the settings, as data. `crate::findings` has the words.

use crate::fabric::KeptRails;
use crate::fabric::interface::InterfaceChoice;

/// Worth telling, and not to be seen from the settings and the ports alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// HCAs that carry a default route, and are rails all the same.
    DefaultRouteRails(KeptRails),
    /// RoCE ports, by their names, without a GID of an address of this container.
    WithoutOwnGid(Vec<String>),
    /// No index is right for every port. `index` is right for `agreeing` of `of`, and not for
    /// the `rest`.
    GidSlotsDiffer { index: u32, agreeing: usize, of: usize, rest: Vec<String> },
    /// The published index is not right here. `None` where no index is set instead.
    PublishedGidDiffers { published: String, instead: Option<u32> },
    /// More ports than this release takes.
    TooManyHcas { usable: usize, most: usize },
    /// The published list of HCAs does not select those to use.
    PublishedHcasDiffer(String),
    /// The published interface is another than the one that was chosen.
    PublishedInterfaceDiffers { published: String, chosen: InterfaceChoice },
    /// Nothing tells which interface leads to the other nodes; nor does the published one.
    NoInterface { published: Option<String> },
}
