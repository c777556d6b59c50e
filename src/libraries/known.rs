//! The names of the variables of libraries beside NCCL, so that a slip in a name is found. A name that is
//! known to no list, and near to none, is not a slip: not all variables are known here. Each list is sorted.

use std::sync::LazyLock;

use super::nccl::variables::nearest_of;
use super::{ALL, Library};

/// The lists: all names of a library, which are also what a name may have been meant to be.
const LISTS: &[&str] = &[
    include_str!("known/others.txt"),
    include_str!("known/nvshmem.txt"),
    include_str!("known/mooncake.txt"),
    include_str!("known/uccl.txt"),
    include_str!("known/amd.txt"),
];

/// The fields of UCX's tables of options.
const UCX_FIELDS: &str = include_str!("known/ucx.txt");
/// The names that people set. UCX has too many that differ by a letter or two (`UCX_RC_...`, `UCX_DC_...`).
const UCX_COMMON: &str = include_str!("known/ucx_common.txt");
const UCX: &str = "UCX_";

/// What stands between `UCX_` and a field, one after the other: the names of transports and of the parts of
/// their tables (`UCT_TL_DEFINE_ENTRY` and the like).
const UCX_PREFIXES: &[&str] = &[
    "CM_", "CMA_", "COPY_", "CUDA_", "DC_", "GAUDI_", "GDA_", "GDR_", "GGA_", "IB_", "IPC_", "KNEM_", "MD_",
    "MEM_", "MLX5_", "MM_", "POSIX_", "RC_", "RDMA_", "ROCM_", "RX_", "SCOPY_", "SELF_", "SM_", "SMSG_",
    "SRD_", "SYSV_", "TCP_", "TX_", "UD_", "UDT_", "UGNI_", "VERBS_", "XPMEM_", "ZE_",
];

/// The most prefixes that one name has.
const MOST_PREFIXES: usize = 6;

/// Returns the known name that a name was probably meant to be; `None` for one that is known itself, or that
/// resembles none.
#[must_use]
pub(crate) fn meant(name: &str) -> Option<&'static str> {
    if let Some(rest) = name.strip_prefix(UCX) {
        return if is_of_ucx(rest, MOST_PREFIXES) { None } else { nearest_of(lines(UCX_COMMON), name) };
    }
    // The names of a library all have its prefix, and those of others are far from it.
    let start = name.split_inclusive('_').next()?;
    let alike = of_start(&NAMES, start);
    if alike.binary_search(&name).is_ok() { None } else { nearest_of(alike.iter().copied(), name) }
}

/// Returns whether a list contains the name.
#[must_use]
pub(crate) fn knows(name: &str) -> bool {
    match name.strip_prefix(UCX) {
        Some(rest) => is_of_ucx(rest, MOST_PREFIXES),
        None => NAMES.binary_search(&name).is_ok(),
    }
}

/// The lists are parsed only once, because the user may have set thousands of variables.
static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let of_library = |library: &'static Library| library.filled.iter().chain(library.read).copied();
    let decided = ALL.iter().copied().flat_map(of_library).filter(|name| !name.ends_with('_'));
    let mut names: Vec<&str> = LISTS.iter().copied().flat_map(lines).chain(decided).collect();
    names.sort();
    names.dedup();
    names
});
static FIELDS: LazyLock<Vec<&str>> = LazyLock::new(|| lines(UCX_FIELDS).collect());

/// Returns the names that start with these letters.
fn of_start<'n>(names: &'n [&'static str], start: &str) -> &'n [&'static str] {
    let rest = names.get(names.partition_point(|name| *name < start)..).unwrap_or_default();
    rest.get(..rest.partition_point(|name| name.starts_with(start))).unwrap_or_default()
}

fn is_of_ucx(rest: &str, prefixes: usize) -> bool {
    let shorter =
        |prefix: &&str| rest.strip_prefix(*prefix).is_some_and(|rest| is_of_ucx(rest, prefixes - 1));
    FIELDS.binary_search(&rest).is_ok() || prefixes > 0 && UCX_PREFIXES.iter().any(shorter)
}

fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_is_recognized() {
        for (name, wanted) in [
            ("UCX_NET_DEVICE", "UCX_NET_DEVICES"),
            ("UCX_IB_GID_INDX", "UCX_IB_GID_INDEX"),
            ("UCX_TL", "UCX_TLS"),
            ("UCX_IB_ROCE_SUBNET", "UCX_IB_ROCE_SUBNETS"),
            ("GLOO_SOCKET_IFNAMES", "GLOO_SOCKET_IFNAME"),
            ("TP_SOCKET_IFNAMES", "TP_SOCKET_IFNAME"),
            ("NVSHMEM_HCA_LISTS", "NVSHMEM_HCA_LIST"),
            ("NVSHMEM_IB_GID_IDX", "NVSHMEM_IB_GID_INDEX"),
            ("MC_GID_INDX", "MC_GID_INDEX"),
            ("MC_MS_FILTER", "MC_MS_FILTERS"),
            ("UCCL_SOCKET_IFNAMES", "UCCL_SOCKET_IFNAME"),
            ("VLLM_NIC_SELECTION_VAR", "VLLM_NIC_SELECTION_VARS"),
        ] {
            assert_eq!(meant(name), Some(wanted), "{name}");
        }
    }

    #[test]
    fn what_is_known_or_resembles_nothing_is_no_slip() {
        for name in [
            "UCX_RC_MLX5_TX_MIN_SGE",
            "UCX_DC_VERBS_TIMEOUT",
            "UCX_RC_VERBS_TIMEOUT",
            "UCX_MAX_RMA_LANES",
            "UCX_UD_MLX5_TIMEOUT",
            "UCX_GDA_MAX_HCA_PER_GPU",
            "UCX_VERSION",
            "UCX_HOME",
            "UCX_DIR",
            "NVSHMEM_IBGDA_NUM_DCT",
            "NVSHMEM_DIR",
            "NVSHMEM_OF_TOMORROW",
            "MC_HOST_minio",
            "MC_IB_SL",
            "UCCL_IB_SL",
            "GLOO_TIMEOUT",
            "TP_SIZE",
        ] {
            assert_eq!(meant(name), None, "{name}");
        }
    }

    #[test]
    fn the_lists_know_every_variable_that_is_read_here() {
        for library in ALL {
            for name in library.read.iter().chain(library.filled).filter(|name| !name.ends_with('_')) {
                assert_eq!(meant(name), None, "{name}");
                let slip = format!("{name}S");
                assert_eq!(meant(&slip), Some(*name), "{slip}");
            }
        }
        for list in LISTS.iter().chain([&UCX_FIELDS, &UCX_COMMON]) {
            let names: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(names.is_sorted() && names.iter().all(|name| !name.is_empty()));
        }
        assert!(lines(UCX_COMMON).all(|name| meant(name).is_none()));
    }
}
