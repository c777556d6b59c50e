//! The env plugin: a library whose answers replace the values of all variables, conf files
//! included (`src/plugin/env.cc`, `plugins/env/README.md`).

use super::version::{READS_ENV_PLUGIN, Version};
use super::{installed, plugin};
use crate::facts::Facts;

pub const VARIABLE: &str = "NCCL_ENV_PLUGIN";

/// How the names of such plugins begin.
const START: &str = "libnccl-env";

/// The file of the plugin that a release loads; none if the image is unknown. If nothing is
/// named, NCCL tries `libnccl-env.so`.
pub fn loaded<'v>(facts: &Facts, get: impl Fn(&str) -> Option<&'v str>, version: Version) -> Option<String> {
    if version < READS_ENV_PLUGIN || installed::image(facts).is_none() || installed::is_rccl(facts) {
        return None;
    }
    let name = get(VARIABLE).unwrap_or_default();
    if name.eq_ignore_ascii_case("none") {
        return None;
    }
    let files = match name {
        "" => vec![format!("{START}.so")],
        name => plugin::files_of(START, name),
    };
    let found = files.iter().find_map(|file| installed::named_plugin(facts, file)?)?;
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
}
