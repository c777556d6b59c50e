//! Profiles: what a platform publishes, as data. One TOML file each, embedded;
//! users write their own in the same format.

mod format;
mod load;
mod resolve;

pub use format::{Condition, Constraints, DefaultRouteHca, Fabric, HcaEvidence, Profile, fits};
pub use load::{ProfileError, Profiles};

/// The profiles that come with the program, by file name.
const EMBEDDED: &[(&str, &str)] = &[
    ("ack-erdma.toml", include_str!("ack-erdma.toml")),
    ("acs-type1.toml", include_str!("acs-type1.toml")),
    ("acs-type2.toml", include_str!("acs-type2.toml")),
    ("aws-efa.toml", include_str!("aws-efa.toml")),
    ("baidu-cce.toml", include_str!("baidu-cce.toml")),
    ("erdma.toml", include_str!("erdma.toml")),
    ("generic-ib.toml", include_str!("generic-ib.toml")),
    ("generic-roce.toml", include_str!("generic-roce.toml")),
    ("pai-erdma.toml", include_str!("pai-erdma.toml")),
];
