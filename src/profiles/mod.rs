//! Profiles: what platforms publish, as data. There is one embedded TOML file for each profile; users write
//! their own profiles in the same format.

mod check;
mod embedded;
mod explain;
mod folder;
mod format;
mod load;
mod makers;
mod never;
mod outline;
mod resolve;

pub use check::WrongConstant;
pub(crate) use check::{constant as check_constant, range_of};
pub use format::{
    AttributeEvidence, Condition, Constraints, DefaultRouteHca, Fabric, GpuRow, HcaEvidence, Only, Profile,
    Script, Text, fits, fits_model,
};
#[cfg(any(test, fuzzing))]
pub(crate) use load::fuzz;
pub use load::{ProfileError, Profiles};
pub(crate) use makers::maker_of;
pub use outline::Outline;
