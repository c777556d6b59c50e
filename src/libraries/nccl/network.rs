//! The names that `NCCL_NET` has for the transport between nodes. NCCL compares them case-insensitively
//! (`src/net.cc`, `ncclNetInit`; later `src/plugin/net.cc`, `ncclNetPluginAssignToComm`).

use std::path::Path;

use super::predict::Transport;

pub(crate) const VARIABLE: &str = "NCCL_NET";

/// The name of NCCL's own transport for InfiniBand and RoCE (`src/transport/net_ib.cc`).
const OWN: &str = "IB";
pub(crate) const OF_AWS: &str = "AWS Libfabric";
/// The name in later releases of the same plugin.
const OF_AWS_SINCE: &str = "Libfabric";
const OF_GOOGLE: &str = "gIB";
const OF_AMD: &str = "RCCL-ANP";
/// Google's plugin for GPUDirect-TCPXO, according to NCCL's log with it.
const OF_TCPXO: &str = "FasTrak";

/// All names that rdma-init may fill in.
pub(crate) const NAMES: [&str; 4] = [OWN, OF_AWS, OF_GOOGLE, OF_AMD];

/// Returns the name of an RDMA transport; `None` for sockets and for a plugin whose name is unknown.
#[must_use]
pub(crate) fn name(transport: &Transport) -> Option<&'static str> {
    match transport {
        Transport::Verbs(_) => Some(OWN),
        Transport::Plugin { file, found: true, .. } => of_plugin(file),
        Transport::Plugin { .. } | Transport::Sockets { .. } | Transport::Fails(_) => None,
    }
}

/// Returns the name that a plugin has in each of its releases, based on the vendor's path for it:
///
/// * aws-ofi-nccl: `AWS Libfabric`. Its later releases are named `Libfabric` but accept this name if
///   `NCCL_NET` contains it (`src/nccl_ofi_interface_nvidia.cpp`, `nvidia_plugin_name_fixup`).
/// * Google's plugin: `gIB`, according to its own log and `set_nccl_env.sh`.
/// * AMD's plugin for its NICs: `RCCL-ANP`, by which RCCL also recognizes it (`src/transport/net.cc`).
///
/// NVIDIA's HPC-X plugin has a separate name for each version of NCCL's interface (`IBext_v8`) and contains
/// several of them, so no name is certain.
fn of_plugin(file: &str) -> Option<&'static str> {
    let name = Path::new(file).file_name()?.to_str()?;
    if is_of_aws(file) {
        Some(OF_AWS)
    } else if file.starts_with("/usr/local/gib/") {
        Some(OF_GOOGLE)
    } else {
        name.starts_with("librccl-anp").then_some(OF_AMD)
    }
}

/// Returns whether this is the file of aws-ofi-nccl, by its name or AWS's directories for it.
#[must_use]
pub(crate) fn is_of_aws(file: &str) -> bool {
    let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["libnccl-net-ofi", "libnccl-net-aws-ofi"].iter().any(|start| name.starts_with(start))
        || ["/opt/amazon/ofi-nccl/", "/opt/aws-ofi-nccl/"].iter().any(|folder| file.starts_with(folder))
}

/// Returns whether this is the name of one of NCCL's own transports.
#[must_use]
pub(crate) fn is_built_in(wanted: &str) -> bool {
    [OWN, "Socket"].iter().any(|name| wanted.eq_ignore_ascii_case(name))
}

/// Returns whether the text is the name of a plugin's network, which belongs in `NCCL_NET`.
#[must_use]
pub(crate) fn is_of_some_plugin(wanted: &str) -> bool {
    let mut names = NAMES.iter().filter(|name| **name != OWN).chain([&OF_AWS_SINCE, &OF_TCPXO]);
    names.any(|name| wanted.eq_ignore_ascii_case(name))
}

/// Returns whether NCCL, with this plugin, finds no network of the wanted name. This is known of aws-ofi-nccl alone.
#[must_use]
pub(crate) fn is_other(file: &str, wanted: &str) -> bool {
    is_of_aws(file) && !wanted.is_empty() && !is_network_of_aws(wanted)
}

/// Returns whether aws-ofi-nccl takes this for the name of its network.
#[must_use]
pub(crate) fn is_network_of_aws(wanted: &str) -> bool {
    // See `of_plugin`: later releases also accept a text that contains the earlier name.
    wanted.eq_ignore_ascii_case(OF_AWS_SINCE)
        || wanted.contains(OF_AWS)
        || wanted.eq_ignore_ascii_case(OF_AWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_has_the_name_that_its_maker_gives_it() {
        for (file, name) in [
            ("/opt/amazon/ofi-nccl/lib/libnccl-net.so", Some("AWS Libfabric")),
            ("/opt/aws-ofi-nccl/install/lib/libnccl-net.so.0.0.0", Some("AWS Libfabric")),
            ("/usr/lib/libnccl-net-ofi.so", Some("AWS Libfabric")),
            ("/usr/local/gib/lib64/libnccl-net.so", Some("gIB")),
            ("/opt/rocm/lib/librccl-anp.so", Some("RCCL-ANP")),
            ("/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so", None),
            ("/usr/lib/libnccl-net.so", None),
        ] {
            let otherwise = Box::new(Transport::Verbs(Vec::new()));
            let plugin =
                |found| Transport::Plugin { file: file.to_owned(), found, otherwise: otherwise.clone() };
            assert_eq!((super::name(&plugin(true)), super::name(&plugin(false))), (name, None), "{file}");
        }
        let file = "/opt/amazon/ofi-nccl/lib/libnccl-net.so";
        for (wanted, is_other) in
            [("ofi", true), ("AWS Libfabric", false), ("libfabric", false), ("", false), ("efa", true)]
        {
            assert_eq!(super::is_other(file, wanted), is_other, "{wanted}");
        }
        assert!(!is_other("/usr/lib/libnccl-net.so", "ofi"), "its name is unknown");
        assert_eq!(name(&Transport::Verbs(Vec::new())), Some("IB"));
        let tcp = Transport::Sockets { why: String::new(), interfaces: Vec::new() };
        assert_eq!((name(&tcp), name(&Transport::Fails(String::new()))), (None, None));
    }
}
