//! Whether NCCL reaches the GPUs of other nodes over NVLink (MNNVL), and what it does if the
//! container has no IMEX channel for that (`checkMNNVL` in `src/init.cc`, `ncclMnnvlCheck` in
//! `src/mnnvl.cc` since 2.25).
//!
//! Only NVML knows whether there are such GPUs: NCCL asks it for the state of the fabric, the cluster and the
//! clique (`nvmlDeviceGetGpuFabricInfoV`).

use super::level;
use super::number::{integer, strtoll};
use super::version::Version;

pub(crate) const VARIABLE: &str = "NCCL_MNNVL_ENABLE";

/// The first release that supports MNNVL.
pub(crate) const SINCE: Version = Version::new(2, 21, 0);
/// The first release that tries to share memory before it decides to use MNNVL.
const TRIES: Version = Version::new(2, 25, 0);
/// The first release that fails the job if memory cannot be shared, and that reads `NCCL_P2P_DISABLE`.
pub(crate) const INSISTS: Version = Version::new(2, 27, 0);

/// The GPUs whose nodes are built for one NVLink domain: GB200 NVL72 and similar. A GH200 may be in a domain,
/// but usually is not.
pub(crate) const MODELS: &[&str] = &["GB200", "GB300"];

/// What a release does about other nodes' GPUs that NVLink reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mnnvl {
    /// The release does not support them.
    Unknown,
    /// This variable makes the release ignore them.
    Off(&'static str),
    /// The release uses them if NVML reports any.
    Wanted(WithoutChannel),
}

/// What happens to a job that has several nodes of one clique but no IMEX channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithoutChannel {
    /// NCCL decides to use MNNVL, and the job fails with a CUDA error (800 or 801) when NCCL first shares
    /// memory.
    CudaError,
    /// NCCL silently uses the network instead.
    Network,
    /// NCCL fails: `MNNVL (cliqueSize 8) is available but not working on this system`, which programs show as
    /// "unhandled system error".
    SystemError,
}

pub(crate) fn mnnvl<'a>(get: impl Fn(&str) -> Option<&'a str>, version: Version) -> Mnnvl {
    if version < SINCE {
        return Mnnvl::Unknown;
    }
    let number = |name| get(name).and_then(|value| integer(value, version));
    let enable = number(VARIABLE).unwrap_or(2);
    if enable == 0 {
        return Mnnvl::Off(VARIABLE);
    }
    // -2 leaves the decision to the driver, and every driver of such GPUs supports it.
    if !matches!(number(CUMEM).unwrap_or(-2), -2 | 1..) {
        return Mnnvl::Off(CUMEM);
    }
    if version >= INSISTS
        && enable != 1
        && let Some(variable) = without_p2p(&get, version)
    {
        return Mnnvl::Off(variable);
    }
    Mnnvl::Wanted(match version {
        version if version < TRIES => WithoutChannel::CudaError,
        version if version < INSISTS => WithoutChannel::Network,
        _ => WithoutChannel::SystemError,
    })
}

const CUMEM: &str = "NCCL_CUMEM_ENABLE";
const P2P: &str = "NCCL_P2P_DISABLE";
const P2P_LEVEL: &str = "NCCL_P2P_LEVEL";

/// Returns the variable that prevents GPUs from accessing each other's memory (`ncclGetUserP2pLevel`).
fn without_p2p<'a>(get: &impl Fn(&str) -> Option<&'a str>, version: Version) -> Option<&'static str> {
    if get(P2P).and_then(strtoll) == Some(1) {
        return Some(P2P);
    }
    (get(P2P_LEVEL).and_then(|text| level::parse(text, version)) == Some("LOC")).then_some(P2P_LEVEL)
}

/// Whether NVLink multicast (NVLS) is in use. On one node, it needs no IMEX channel; between nodes, it needs
/// what MNNVL needs (`ncclNvlsInit` in `src/transport/nvls.cc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nvls {
    Off,
    /// In use if the driver reports that the GPUs support it.
    Automatic,
    /// In use regardless of the driver.
    Forced,
}

pub(crate) fn nvls<'a>(get: impl Fn(&str) -> Option<&'a str>, version: Version) -> Nvls {
    match get("NCCL_NVLS_ENABLE").and_then(|value| integer(value, version)).unwrap_or(2) {
        0 => Nvls::Off,
        2 => Nvls::Automatic,
        _ => Nvls::Forced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&'static str, &'static str)], minor: u32) -> Mnnvl {
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        mnnvl(get, Version::new(2, minor, 3))
    }

    #[test]
    fn without_a_channel_each_release_ends_in_its_own_way() {
        use WithoutChannel::{CudaError, Network, SystemError};
        assert_eq!(with(&[], 20), Mnnvl::Unknown);
        for (minor, wanted) in [
            (21, CudaError),
            (24, CudaError),
            (25, Network),
            (26, Network),
            (27, SystemError),
            (30, SystemError),
        ] {
            assert_eq!(with(&[], minor), Mnnvl::Wanted(wanted), "2.{minor}");
        }
    }

    #[test]
    fn variables_turn_it_off() {
        let is_off = |variables: &[(&'static str, &'static str)], minor, by| {
            assert_eq!(with(variables, minor), Mnnvl::Off(by), "{variables:?} 2.{minor}");
        };
        is_off(&[(VARIABLE, "0")], 21, VARIABLE);
        is_off(&[(VARIABLE, "0")], 28, VARIABLE);
        is_off(&[(CUMEM, "0")], 23, CUMEM);
        is_off(&[(CUMEM, "-1")], 28, CUMEM);
        is_off(&[(P2P, "1")], 27, P2P);
        is_off(&[(P2P_LEVEL, "LOC")], 28, P2P_LEVEL);
        is_off(&[(P2P_LEVEL, "0")], 28, P2P_LEVEL);
        let is_on = |variables: &[(&'static str, &'static str)], minor| {
            assert!(matches!(with(variables, minor), Mnnvl::Wanted(_)), "{variables:?} 2.{minor}");
        };
        is_on(&[(P2P, "1")], 26);
        is_on(&[(P2P, "2")], 28);
        is_on(&[(P2P, "1"), (VARIABLE, "1")], 28);
        is_on(&[(P2P_LEVEL, "NVL")], 28);
        is_on(&[(CUMEM, "1"), (VARIABLE, "1")], 28);
        is_on(&[(CUMEM, "-2"), (VARIABLE, "")], 28);
    }

    #[test]
    fn nvls_is_automatic_unless_a_number_says_otherwise() {
        let with = |value: Option<&'static str>| nvls(|_| value, Version::new(2, 28, 9));
        assert_eq!(
            [None, Some("0"), Some("1"), Some("2")].map(with),
            [Nvls::Automatic, Nvls::Off, Nvls::Forced, Nvls::Automatic]
        );
    }
}
