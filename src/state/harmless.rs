//! Determines what may be used from a state that a process outside this container may have written: variables
//! that make no program use a file, a library, code, or another machine.

use crate::facts::environment::is_variable_name;
use crate::libraries::nccl::{network, variables};
use crate::libraries::{self, rccl};

/// Parts of the names of variables whose value is a file, a directory, or an address.
const LEADS: [&str; 6] = ["FILE", "PATH", "LIB", "DIR", "CONF", "ADDR"];

/// Variables that refer to a machine although their names do not show it.
const LEADS_BY_NAME: [&str; 1] = ["NCCL_COMM_ID"];

/// Variables that refer to no file or machine although their names look like it.
const LEADS_NOWHERE: [&str; 4] =
    ["NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NVSHMEM_IB_ADDR_FAMILY", "NVSHMEM_IB_ADDR_RANGE"];

/// Variables of other libraries than NCCL that profiles fill in or request (`plan::companions`).
const OF_OTHERS: [&str; 3] = ["FI_EFA_FORK_SAFE", "FI_PROVIDER", "PYTHONUNBUFFERED"];

/// In bytes: a list of all of a host's HCAs is far shorter.
const LONGEST: usize = 1024;

/// Returns whether a variable with this value may be used from any state.
pub(crate) fn is_harmless(name: &str, value: &str) -> bool {
    if !is_variable_name(name) || !is_known(name) {
        return false;
    }
    // The value of such a variable becomes part of a library's name.
    if name.ends_with("_PLUGIN") {
        return value == "none";
    }
    let leads = name.split('_').any(|part| LEADS.contains(&part)) && !LEADS_NOWHERE.contains(&name);
    !leads && !LEADS_BY_NAME.contains(&name) && is_plain(name, value)
}

fn is_known(name: &str) -> bool {
    variables::find(name).is_some()
        || rccl::knows(name)
        || libraries::may_fill(name)
        || OF_OTHERS.contains(&name)
}

/// Returns whether the value is neither a path nor special to a shell.
fn is_plain(name: &str, value: &str) -> bool {
    if name == network::VARIABLE && network::NAMES.contains(&value) {
        return true;
    }
    let is_range = name.ends_with("_IB_ADDR_RANGE");
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+.,:=^".contains(c) || c == '/' && is_range;
    value.len() <= LONGEST && !value.starts_with('.') && value.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::Profiles;

    /// Fails for each new NCCL variable until an engineer has checked whether it refers to a file or a
    /// machine.
    #[test]
    fn what_leads_somewhere_is_known() {
        let leading: Vec<&str> =
            variables::all().map(|variable| variable.name).filter(|name| !is_harmless(name, "1")).collect();
        let wanted = [
            "NCCL_COMM_ID",
            "NCCL_CONF_FILE",
            "NCCL_CUDA_PATH",
            "NCCL_DEBUG_FILE",
            "NCCL_ENV_PLUGIN",
            "NCCL_GIN_PLUGIN",
            "NCCL_GRAPH_DUMP_FILE",
            "NCCL_GRAPH_DUMP_FILE_RANK",
            "NCCL_GRAPH_FILE",
            "NCCL_IBVERBS_LIB",
            "NCCL_NET_PLUGIN",
            "NCCL_PROFILER_PLUGIN",
            "NCCL_RAS_ADDR",
            "NCCL_RMA_PLUGIN",
            "NCCL_TOPO_DUMP_FILE",
            "NCCL_TOPO_DUMP_FILE_RANK",
            "NCCL_TOPO_FILE",
            "NCCL_TUNER_PLUGIN",
        ];
        assert_eq!(leading, wanted);
    }

    /// TZ names a file for the C library.
    #[test]
    fn our_own_profiles_are_of_use() {
        let profiles = Profiles::load(None).unwrap();
        let all = profiles.iter().flat_map(|profile| &profile.variables);
        let left_out: Vec<&str> =
            all.map(|(name, _)| name.as_str()).filter(|name| !is_harmless(name, "none")).collect();
        assert_eq!(left_out, ["NCCL_IBEXT_DISABLE", "TZ"]);
    }

    #[test]
    fn settings_are_taken_and_code_is_not() {
        for (name, value) in [
            ("NCCL_IB_HCA", "=mlx5_1,mlx5_2:1"),
            ("NCCL_IB_HCA", ""),
            ("NCCL_SOCKET_IFNAME", "^docker0,lo"),
            ("NCCL_IB_ADDR_RANGE", "25.11.0.0/16"),
            ("NCCL_IB_ADDR_RANGE", "fd00::/64"),
            ("NCCL_NET", "AWS Libfabric"),
            ("NCCL_NET_PLUGIN", "none"),
            ("NCCL_TUNER_PLUGIN", "none"),
            ("GLOO_SOCKET_IFNAME", "eth0"),
            ("UCX_NET_DEVICES", "mlx5_1:1"),
            ("FI_EFA_FORK_SAFE", "1"),
        ] {
            assert!(is_harmless(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("LD_PRELOAD", "evil.so"),
            ("LD_LIBRARY_PATH", "none"),
            ("BASH_ENV", "evil"),
            ("PYTHONPATH", "evil"),
            ("PATH", "none"),
            ("UCX_MODULE_DIR", "evil"),
            ("NCCL_NET_PLUGIN", "/tmp/evil.so"),
            ("NCCL_NET_PLUGIN", "evil"),
            ("NCCL_NET_PLUGIN", ""),
            ("NCCL_TOPO_FILE", "evil"),
            ("NCCL_IB_HCA", "/tmp/evil"),
            ("NCCL_IB_HCA", ".evil"),
            ("NCCL_IB_HCA", "$(id)"),
            ("NCCL_IB_HCA", "a b"),
            ("NCCL_NET", "a b"),
            ("NCCL_IB_HCA", "a\nb"),
            ("NCCL_IB_HCA;id", "1"),
        ] {
            assert!(!is_harmless(name, value), "{name}={value}");
        }
        assert!(!is_harmless("NCCL_IB_HCA", &"a".repeat(LONGEST + 1)));
    }
}
