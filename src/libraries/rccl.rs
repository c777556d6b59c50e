//! RCCL, AMD's NCCL. Its version is that of the NCCL release whose changes it adopted
//! (`makefiles/version.mk`, `CHANGELOG.md`: "Compatibility with NCCL ..."), and it reads NCCL's variables by
//! that release's rules. What is modeled of these releases was compared with ROCm/rccl: a maximum of 16 HCAs
//! before 2.20.5 and 32 since (`MAX_IB_DEVS`), the search for a GID since 2.21.5 (`ncclIbGetGidIndex`),
//! `NCCL_CONF_FILE` by 2.26.6.
//!
//! Since 2.30.4 it asks an env plugin, as NCCL 2.28.7 does (`src/plugin/env.cc`, `ncclGetEnv`);
//! `CHANGELOG.md` states "Compatibility with NCCL 2.28.9" for that release.
//!
//! RCCL has its own names for the conf files, `~/.rccl.conf` and `/etc/rccl.conf` (`src/misc/param.cc`), and
//! for the network plugins, `librccl-net*.so` (`src/net.cc`, later `src/plugin/plugin_open.cc`).

use super::nccl::variables;
use super::nccl::version::Version;

/// RCCL's releases, each with the first ROCm release that contains it.
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

/// RCCL's own variables, sorted by name: those that its sources of ROCm 4.5 to 6.3 read, and those that its
/// changelog names up to ROCm 7.14. RCCL may read others as well.
const VARIABLES: &[&str] = &[
    "RCCL_AINIC_ROCE",
    "RCCL_CE_ALLREDUCE",
    "RCCL_CHANNEL_TUNING_ENABLE",
    "RCCL_CLIQUE_ALLREDUCE_BYTE_LIMIT",
    "RCCL_CLIQUE_ALLREDUCE_NCHANNELS",
    "RCCL_CLIQUE_IGNORE_TOPO",
    "RCCL_CTS_INLINE_DATA",
    "RCCL_CTS_OFFLOAD_ENABLED",
    "RCCL_DDA_ENABLE",
    "RCCL_DDA_FABRIC_MAXBLOCKS",
    "RCCL_DDA_LL",
    "RCCL_DDA_LL128",
    "RCCL_DDA_LL128_THRESHOLD",
    "RCCL_DDA_LL_THRESHOLD",
    "RCCL_DDA_THRESHOLD",
    "RCCL_DISABLE_RAIL_TREES",
    "RCCL_DUMP_ROME_MODEL_FILE",
    "RCCL_ENABLE_CLIQUE",
    "RCCL_ENABLE_CONTEXT_TRACKING",
    "RCCL_ENABLE_HIPGRAPH",
    "RCCL_ENABLE_INTRANET",
    "RCCL_ENABLE_MULTIPLE_SAT",
    "RCCL_ENABLE_SIGNALHANDLER",
    "RCCL_FORCE_CE",
    "RCCL_FORCE_CE_ALLREDUCE",
    "RCCL_FORCE_ENABLE_CLIQUE",
    "RCCL_FORCE_ENABLE_DMABUF",
    "RCCL_FORCE_ENABLE_GDRDMA",
    "RCCL_GDR_FLUSH_GPU_MEM_NO_RELAXED_ORDERING",
    "RCCL_HIERARCHICAL_ALLGATHER",
    "RCCL_IB_P2P_DISABLE_CTS",
    "RCCL_IB_QPS_PER_P2P",
    "RCCL_IB_SPLIT_DATA_THRESHOLD",
    "RCCL_IGNORE_ARCH_TABLE",
    "RCCL_INTRANET_THRESHOLD",
    "RCCL_KERNEL_COLL_TRACE_ENABLE",
    "RCCL_LL128_FORCE_ENABLE",
    "RCCL_LOG_LEVEL",
    "RCCL_MODEL_MATCHING_DISABLE",
    "RCCL_MSCCLPP_ENABLE",
    "RCCL_MSCCLPP_THRESHOLD",
    "RCCL_MSCCL_ENABLE",
    "RCCL_MSCCL_ENABLE_DONE_EVENT",
    "RCCL_MSCCL_ENABLE_SINGLE_PROCESS",
    "RCCL_MSCCL_FORCE_ENABLE",
    "RCCL_MSCCL_FORCE_FULLOPS",
    "RCCL_MSCCL_WORK_FIFO_DEPTH",
    "RCCL_NET_CONTIGUOUS_MEM",
    "RCCL_OUTPUT_TREES",
    "RCCL_OVERRIDE_ALGO",
    "RCCL_OVERRIDE_PROTO",
    "RCCL_P2P_BATCH_ENABLE",
    "RCCL_P2P_BATCH_THRESHOLD",
    "RCCL_P2P_NET_DISABLE",
    "RCCL_P2P_NET_THRESHOLD",
    "RCCL_P2P_SHIFT_SIZE",
    "RCCL_PIVOT_ALLTOALL_ENABLE",
    "RCCL_PROXYTRACE",
    "RCCL_ROCR_PATH",
    "RCCL_SATURATE_P2P_NCHANNELS",
    "RCCL_SHARP_THRESHOLD",
    "RCCL_SOCKET_LINGER",
    "RCCL_SOCKET_REUSEADDR",
    "RCCL_STACK_SIZE_OVERRIDE",
    "RCCL_THREADS_PER_BLOCK",
    "RCCL_TREES",
    "RCCL_UNROLL_FACTOR",
    "RCCL_USE_ROCM_SMI_LIB",
    "RCCL_WARP_SPEED_AUTO",
    "RCCL_WARP_SPEED_CU_COUNT",
    "RCCL_WARP_SPEED_ENABLE",
];

/// Returns whether RCCL is known to read a variable with this name.
#[must_use]
pub(crate) fn knows(name: &str) -> bool {
    VARIABLES.contains(&name)
}

/// Returns the known name that a misspelled one probably means.
#[must_use]
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    variables::nearest_of(VARIABLES.iter().copied(), name)
}

/// Returns the first ROCm release that contains this RCCL; `None` for an unknown version.
#[must_use]
pub(crate) fn rocm(version: &str) -> Option<&'static str> {
    let version = Version::parse(version)?;
    RELEASES.iter().find(|(known, _)| *known == version).map(|(_, rocm)| *rocm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_is_recognized() {
        assert!(VARIABLES.is_sorted() && VARIABLES.iter().all(|name| name.starts_with("RCCL_")));
        assert!(knows("RCCL_AINIC_ROCE") && !knows("RCCL_AINIC_ROCEV2"));
        assert_eq!(nearest("RCCL_MSCCL_ENABEL"), Some("RCCL_MSCCL_ENABLE"));
        assert_eq!(nearest("RCCL_SOMETHING_OF_TOMORROW"), None);
    }

    #[test]
    fn releases_are_in_order_and_tell_their_rocm() {
        assert!(RELEASES.iter().is_sorted_by(|(a, _), (b, _)| a < b));
        assert_eq!(rocm("2.20.5"), Some("6.2"));
        assert_eq!(rocm("2.13.4"), Some("5.4"));
        assert_eq!(rocm("2.20.6"), None);
    }
}
