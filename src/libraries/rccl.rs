//! RCCL, AMD's NCCL. Its version is that of the NCCL whose changes it has taken over
//! (`makefiles/version.mk`, `CHANGELOG.md`: "Compatibility with NCCL ..."), and it reads NCCL's
//! variables by the rules of that release. ROCm/rccl has been compared for what is modelled of
//! these releases: 16 HCAs at most before 2.20.5 and 32 from it on (`MAX_IB_DEVS`), the search
//! for a GID from 2.21.5 on (`ncclIbGetGidIndex`), `NCCL_CONF_FILE` by 2.26.6.
//!
//! Its own are the names of the conf files, `~/.rccl.conf` and `/etc/rccl.conf`
//! (`src/misc/param.cc`), and of the plugins for networks, `librccl-net*.so` (`src/net.cc`, later
//! `src/plugin/plugin_open.cc`).

use super::nccl::version::Version;

/// The releases of RCCL, each with the first ROCm that has it.
const RELEASES: &[(Version, &str)] = &[
    (Version::new(2, 9, 9), "4.5"),
    (Version::new(2, 10, 3), "5.0"),
    (Version::new(2, 11, 4), "5.1"),
    (Version::new(2, 12, 12), "5.3"),
    (Version::new(2, 13, 4), "5.4"),
    (Version::new(2, 15, 5), "5.5"),
    (Version::new(2, 16, 5), "5.6"),
    (Version::new(2, 17, 1), "5.7"),
    (Version::new(2, 18, 3), "6.0"),
    (Version::new(2, 18, 6), "6.1"),
    (Version::new(2, 20, 5), "6.2"),
    (Version::new(2, 21, 5), "6.3"),
    (Version::new(2, 22, 3), "6.4"),
    (Version::new(2, 26, 6), "7.0"),
    (Version::new(2, 27, 7), "7.1"),
    (Version::new(2, 28, 3), "7.11"),
    (Version::new(2, 30, 4), "7.14"),
];

/// The first release of ROCm that has this RCCL; `None` for a version that is not known.
#[must_use]
pub fn rocm(version: &str) -> Option<&'static str> {
    let version = Version::parse(version)?;
    RELEASES.iter().find(|(known, _)| *known == version).map(|(_, rocm)| *rocm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_in_order_and_tell_their_rocm() {
        assert!(RELEASES.iter().is_sorted_by(|(a, _), (b, _)| a < b));
        assert_eq!(rocm("2.20.5"), Some("6.2"));
        assert_eq!(rocm("2.13.4"), Some("5.4"));
        assert_eq!(rocm("2.20.6"), None);
    }
}
