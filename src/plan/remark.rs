//! What the decision has shown besides the settings, as data. The texts are in `crate::findings`.

use std::path::PathBuf;

use crate::fabric::KeptRails;
use crate::fabric::interface::InterfaceChoice;
use crate::profiles::WrongConstant;

/// What replaces a published index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// Another index.
    Index(u32),
    /// No index, because NCCL finds this index on every HCA.
    Found(u32),
    /// No index, because each HCA needs a different one, and NCCL finds it.
    FoundOnEach,
    /// No index, because any index would be wrong on a used HCA.
    Nothing,
}

/// A result that is worth reporting, but not visible in the settings and ports alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// HCAs that carry a default route, but are rails.
    DefaultRouteRails(KeptRails),
    /// RoCE ports, by name, without a GID that holds an address of this container.
    WithoutOwnGid(Vec<String>),
    /// No index is right for every port. `index` is right for `agreeing` of `of` ports, and wrong for the
    /// `rest`, which the plan skips if it `is_set`.
    GidSlotsDiffer { index: u32, agreeing: usize, of: usize, rest: Vec<String>, is_set: bool },
    /// The published index is not right here.
    PublishedGidDiffers { published: String, instead: Instead },
    /// The platform's variable `source` holds what `variable` cannot be.
    PlatformValueWrong { variable: String, source: String, value: String, wrong: WrongConstant },
    /// The firmware shows an instance with this many devices for a net plugin, the image has the plugin at this path,
    /// and the container has no such device.
    DevicesMissing { profile: String, hint: Option<String>, product: String, nics: u32, plugin: PathBuf },
    /// More ports than this release takes.
    TooManyHcas { usable: usize, most: usize },
    /// The published list of HCAs does not select exactly the HCAs to use.
    PublishedHcasDiffer(String),
    /// The published interface is not the chosen one.
    PublishedInterfaceDiffers { published: String, chosen: InterfaceChoice },
    /// Nothing shows which interface reaches the other nodes, not even the published name.
    NoInterface { published: Option<String> },
}
