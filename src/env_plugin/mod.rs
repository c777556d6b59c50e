//! The env plugin: a shared object that NCCL 2.28.7 and later query for each variable, in every process.

pub mod answer;
pub(crate) mod copies;
pub(crate) mod decision;
pub(crate) mod file;
pub(crate) mod in_process;

/// The shared object for this program's architecture; `src/sys/nccl_env_plugin.rs` is its source.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnccl-env.so"));

/// The names of the shared object and of the decision in the state directory.
pub const LIBRARY_FILE: &str = "libnccl-env.so";
pub const DECISION_FILE: &str = "nccl-env";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Returns the texts in the file, including the names in its dynamic section.
    fn texts() -> BTreeSet<&'static str> {
        LIBRARY.split(|byte| *byte == 0).filter_map(|text| str::from_utf8(text).ok()).collect()
    }

    #[test]
    fn the_library_is_small_and_needs_nothing_but_an_old_glibc() {
        assert!(LIBRARY.len() < 100_000, "{}", LIBRARY.len());
        let texts = texts();
        let versions: Vec<&str> = texts.iter().filter_map(|text| text.strip_prefix("GLIBC_")).collect();
        // A current linker may also require a capability, such as `GLIBC_ABI_DT_RELR`.
        let is_old = |version: &&str| {
            let minor =
                version.strip_prefix("2.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
            minor.is_some_and(|minor| minor <= 17)
        };
        assert!(!versions.is_empty() && versions.iter().all(is_old), "{versions:?}");
        let is_library = |text: &&&str| text.ends_with(".so") || text.contains(".so.");
        let libraries: Vec<_> = texts.iter().filter(is_library).collect();
        assert_eq!(libraries, [&"libc.so.6"]);
        for symbol in ["ncclEnvPlugin_v1", "ncclEnvPlugin_v2", "getenv"] {
            assert!(texts.contains(symbol), "{symbol}");
        }
    }

    #[test]
    fn the_library_cannot_panic_and_starts_no_thread() {
        let texts = texts();
        for symbol in ["abort", "pthread_create", "clone", "malloc"] {
            assert!(!texts.contains(symbol), "{symbol}");
        }
    }
}
