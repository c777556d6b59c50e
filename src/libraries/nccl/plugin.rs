//! Which net plugin NCCL tries to load (`src/net.cc`, later `src/plugin/net.cc` and
//! `plugin_open.cc`).

use super::version::{LISTS_PLUGINS, NEEDS_RUNNING as KNOWS_NONE, OPENS_PLUGIN_BY_NAME, Version};

/// The variable that names net plugins.
pub(crate) const VARIABLE: &str = "NCCL_NET_PLUGIN";

/// The file that NCCL tries if no variable names a plugin.
pub(crate) const DEFAULT: &str = "libnccl-net.so";

/// The variables that name the interfaces of Google's plugins for GPUDirect-TCPXO and TCPX: their devices are no HCAs,
/// so these variables show that the job is meant to load the plugin.
pub(crate) const OF_INTERFACES: [&str; 2] = ["NCCL_FASTRAK_IFNAME", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"];

/// Returns the file names in the order in which NCCL tries them; for each plugin of a list, NCCL uses the
/// first that it can load.
pub(crate) fn files(value: Option<&str>, version: Version) -> Vec<Vec<String>> {
    let value = match value {
        Some("") if version < LISTS_PLUGINS => None,
        value => value,
    };
    let Some(value) = value else { return vec![vec![DEFAULT.to_owned()]] };
    if version >= KNOWS_NONE && value.eq_ignore_ascii_case("none") {
        return Vec::new();
    }
    if version < LISTS_PLUGINS {
        return vec![of_name(value, version)];
    }
    value.split(',').filter(|name| !name.is_empty()).map(|name| of_name(name, version)).collect()
}

fn of_name(name: &str, version: Version) -> Vec<String> {
    if version < OPENS_PLUGIN_BY_NAME {
        return vec![format!("libnccl-net-{name}.so")];
    }
    files_of("libnccl-net", name)
}

/// Returns the files that NCCL tries, in this order, for the name of a plugin whose files have this prefix
/// (`openPluginLib` in `src/plugin/plugin_open.cc`).
pub(crate) fn files_of(start: &str, name: &str) -> Vec<String> {
    let is_file = name.contains('/') || (name.starts_with("lib") && name.ends_with(".so"));
    let wrapped = || format!("{start}-{name}.so");
    if is_file { vec![name.to_owned()] } else { vec![name.to_owned(), wrapped()] }
}

/// Returns whether NCCL takes a name to mean the program itself: it compares only as many characters as the
/// name has (`tryOpenLib`).
pub(crate) fn is_static(name: &str) -> bool {
    const STATIC: &str = "STATIC_PLUGIN";
    STATIC.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::version::NEWEST;

    #[test]
    fn the_program_itself_may_be_the_plugin() {
        for (name, wanted) in
            [("STATIC_PLUGIN", true), ("static", true), ("STATIC_PLUGINS", false), ("ofi", false)]
        {
            assert_eq!(is_static(name), wanted, "{name}");
        }
    }

    #[test]
    fn names_become_files_as_the_release_has_it() {
        let (old, middle) = (Version::new(2, 19, 3), Version::new(2, 23, 4));
        let shown = |value, version| -> Vec<String> {
            files(value, version).iter().map(|names| names.join(" ")).collect()
        };
        assert_eq!(shown(None, NEWEST), ["libnccl-net.so"]);
        assert_eq!(shown(Some(""), middle), ["libnccl-net.so"]);
        assert_eq!(shown(Some(""), NEWEST), [""; 0]);
        assert_eq!(shown(Some("none"), NEWEST), [""; 0]);
        assert_eq!(shown(Some("none"), middle), ["none libnccl-net-none.so"]);
        assert_eq!(shown(Some("ofi"), old), ["libnccl-net-ofi.so"]);
        assert_eq!(shown(Some("ofi"), middle), ["ofi libnccl-net-ofi.so"]);
        assert_eq!(shown(Some("libx.so,ofi"), NEWEST), ["libx.so", "ofi libnccl-net-ofi.so"]);
    }
}
