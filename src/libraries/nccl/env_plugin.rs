//! The env plugin: a library whose answers replace the values of all variables, including those in conf files
//! (`src/plugin/env.cc`, `plugins/env/README.md`).

use super::version::{READS_ENV_PLUGIN, Version};
use super::{installed, plugin};
use crate::facts::Facts;

pub const VARIABLE: &str = "NCCL_ENV_PLUGIN";

/// Returns whether the library asks a plugin for a variable with this name: RCCL also asks for its own.
pub(crate) fn is_asked(variable: &str) -> bool {
    variable.starts_with("NCCL_") || variable.starts_with("RCCL_")
}

/// Returns whether the library reads this variable with getenv(3) before it loads the plugin (`src/debug.cc`,
/// `src/misc/param.cc`, `src/plugin/env.cc`), so that no plugin can answer for it: it gets the value of the
/// environment, or else the first one in its conf files.
pub(crate) fn is_read_before(variable: &str) -> bool {
    const NAMES: [&str; 9] = [
        "NCCL_CONF_FILE",
        "NCCL_DEBUG",
        "NCCL_DEBUG_FILE",
        "NCCL_DEBUG_LEVELS",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_DEBUG_TIMESTAMP_FORMAT",
        "NCCL_DEBUG_TIMESTAMP_LEVELS",
        "NCCL_WARN_ENABLE_DEBUG_INFO",
        VARIABLE,
    ];
    NAMES.contains(&variable)
}

/// The prefix of such plugins' names.
const START: &str = "libnccl-env";

/// RCCL's prefix. RCCL's sources used NCCL's prefix, but its manual has this one; it is unknown which release
/// changed that, so both count.
const OF_RCCL: &str = "librccl-env";

/// Returns the files that the library tries for a plugin with this name, or for an empty name.
pub(crate) fn files(facts: &Facts, name: &str) -> Vec<String> {
    let starts: &[&str] = if installed::is_rccl(facts) { &[OF_RCCL, START] } else { &[START] };
    let mut files: Vec<String> = Vec::new();
    for start in starts {
        let of_start = match name {
            "" => vec![format!("{start}.so")],
            name => plugin::files_of(start, name),
        };
        files.extend(of_start.into_iter().filter(|file| !files.contains(file)).collect::<Vec<_>>());
    }
    files
}

/// Returns the plugin file that a release loads; `None` if the image is unknown. If the variable names no
/// plugin, NCCL tries `libnccl-env.so`. RCCL supports plugins from the same NCCL release on, which it is
/// based on.
pub fn loaded<'v>(facts: &Facts, get: impl Fn(&str) -> Option<&'v str>, version: Version) -> Option<String> {
    if version < READS_ENV_PLUGIN || installed::image(facts).is_none() {
        return None;
    }
    let name = get(VARIABLE).unwrap_or_default();
    if name.eq_ignore_ascii_case("none") {
        return None;
    }
    let found = files(facts, name).iter().find_map(|file| installed::named_plugin(facts, file)?)?;
    Some(found.path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::image::library::Library;
    use crate::image::named::Named;

    #[test]
    fn the_plugin_is_found_by_default_and_by_name() {
        let library = |path: &str, name: &str| Library {
            path: path.into(),
            loads_as: vec![name.to_owned()],
            ..Library::default()
        };
        let mine = Some(library("/opt/mine.so", ""));
        let image = Image {
            nccl: vec![library("/usr/lib/libnccl.so.2", "libnccl.so.2")],
            env_plugins: vec![
                library("/usr/lib/libnccl-env.so", "libnccl-env.so"),
                library("/usr/lib/libnccl-env-site.so", "libnccl-env-site.so"),
            ],
            named_plugins: vec![
                Named { name: "/opt/mine.so".to_owned(), library: mine },
                Named { name: "gone".to_owned(), library: None },
            ],
            ..Image::default()
        };
        let facts = Facts { image: Some(image), ..Facts::default() };
        let found = |value: Option<&str>, version| {
            let value = value.map(str::to_owned);
            loaded(&facts, |name| value.as_deref().filter(|_| name == VARIABLE), version)
        };
        let usual = Some("/usr/lib/libnccl-env.so".to_owned());
        for (value, wanted) in [
            (None, usual.clone()),
            (Some(""), usual.clone()),
            (Some("site"), Some("/usr/lib/libnccl-env-site.so".to_owned())),
            (Some("/opt/mine.so"), Some("/opt/mine.so".to_owned())),
            (Some("gone"), None),
            (Some("None"), None),
        ] {
            assert_eq!(found(value, READS_ENV_PLUGIN), wanted, "{value:?}");
        }
        assert_eq!(found(None, Version::new(2, 28, 3)), None);
        assert_eq!(loaded(&Facts::default(), |_| None, READS_ENV_PLUGIN), None);
    }

    #[test]
    fn rccl_may_look_for_a_name_of_its_own() {
        let library = |path: &str, name: &str| Library {
            path: path.into(),
            loads_as: vec![name.to_owned()],
            ..Library::default()
        };
        let with = |name: &str| {
            let image = Image {
                rccl: vec![library("/opt/rocm/lib/librccl.so.1", "librccl.so.1")],
                env_plugins: vec![library(&format!("/usr/lib/{name}"), name)],
                ..Image::default()
            };
            Facts { image: Some(image), ..Facts::default() }
        };
        let found = |name: &str, value: Option<&str>, version| {
            let value = value.map(str::to_owned);
            loaded(&with(name), |name| value.as_deref().filter(|_| name == VARIABLE), version)
        };
        let first = Version::new(2, 30, 4);
        for (name, value) in [
            ("libnccl-env.so", None),
            ("librccl-env.so", None),
            ("librccl-env-json.so", Some("json")),
            ("libnccl-env-json.so", Some("json")),
        ] {
            assert_eq!(found(name, value, first), Some(format!("/usr/lib/{name}")));
            assert_eq!(found(name, value, Version::new(2, 28, 3)), None, "{name}");
        }
        assert_eq!(found("librccl-env.so", Some("none"), first), None);
        // NCCL does not look for RCCL's name.
        let mut of_nccl = with("librccl-env.so");
        let image = of_nccl.image.as_mut().unwrap();
        image.nccl = std::mem::take(&mut image.rccl);
        assert_eq!(loaded(&of_nccl, |_| None, first), None);
    }
}
