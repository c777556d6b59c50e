//! Which net plugin NCCL tries to load (`src/net.cc`, later `src/plugin/net.cc` and
//! `plugin_open.cc`).

use super::version::{LISTS_PLUGINS, NEEDS_RUNNING as KNOWS_NONE, OPENS_PLUGIN_BY_NAME, Version};

/// What is tried where nobody names a plugin.
pub const DEFAULT: &str = "libnccl-net.so";

/// The file names, in the order in which they are tried; for each plugin of a list
/// the first that can be loaded counts.
pub fn files(value: Option<&str>, version: Version) -> Vec<Vec<String>> {
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
    let wrapped = format!("libnccl-net-{name}.so");
    if version < OPENS_PLUGIN_BY_NAME {
        return vec![wrapped];
    }
    let is_file = name.contains('/') || (name.starts_with("lib") && name.ends_with(".so"));
    if is_file { vec![name.to_owned()] } else { vec![name.to_owned(), wrapped] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::version::NEWEST;

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
