//! RAS: NCCL's own view of a running job, and the address at which it answers (`bootstrapInit` in
//! `src/bootstrap.cc`, `rasClientInitSocket` in `src/ras/client_support.cc`).

use super::number::integer;
use super::version::{HAS_RAS, NEWEST, Version};

pub(crate) const ENABLE: &str = "NCCL_RAS_ENABLE";
pub(crate) const ADDRESS: &str = "NCCL_RAS_ADDR";

/// The address if [`ADDRESS`] is not set.
const USUAL: &str = "localhost:28028";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ras<'v> {
    /// Each of the job's processes answers at this address once it has a communicator.
    At(&'v str),
    /// [`ENABLE`] has this value.
    Off(&'v str),
    /// The release has no RAS.
    TooOld(Version),
}

/// Returns what a release does with these variables. An unknown release is treated as a recent one.
pub(crate) fn ras<'v>(get: impl Fn(&str) -> Option<&'v str>, version: Option<Version>) -> Ras<'v> {
    let enable = get(ENABLE);
    match (version, enable) {
        (Some(version), _) if version < HAS_RAS => Ras::TooOld(version),
        (_, Some(value)) if integer(value, version.unwrap_or(NEWEST)).is_some_and(|number| number != 1) => {
            Ras::Off(value)
        }
        _ => Ras::At(get(ADDRESS).unwrap_or(USUAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ras_is_on_unless_it_is_turned_off_or_the_release_is_too_old() {
        let with = |enable: Option<&'static str>, address: Option<&'static str>, version| {
            let get = |name: &str| match name {
                ENABLE => enable,
                ADDRESS => address,
                _ => None,
            };
            ras(get, version)
        };
        let version = |text: &str| Version::parse(text);
        assert_eq!(with(None, None, None), Ras::At(USUAL));
        assert_eq!(with(Some("1"), Some("[::1]:5"), version("2.24.3")), Ras::At("[::1]:5"));
        assert_eq!(with(Some("1"), None, version("2.23.4")), Ras::TooOld(Version::new(2, 23, 4)));
        // Only 1 turns it on.
        for off in ["0", "2", "0x0"] {
            assert_eq!(with(Some(off), None, None), Ras::Off(off), "{off}");
        }
        // An empty value means the default; since 2.32, so does a word.
        assert_eq!(with(Some(""), None, None), Ras::At(USUAL));
        assert_eq!(with(Some("yes"), None, version("2.27.7")), Ras::Off("yes"));
        assert_eq!(with(Some("yes"), None, version("2.32.3")), Ras::At(USUAL));
    }
}
