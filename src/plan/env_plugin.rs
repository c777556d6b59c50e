//! Whether NCCL is to use rdma-init's env plugin. With it, each process gets its own node's values at the
//! time of use. The environment and the conf file contain values in either case.

use super::{EnvPluginOption, Options, Setting, SettingOutcome, User};
use crate::facts::Facts;
use crate::finding::Source;
use crate::image::flavor::Flavor;
use crate::libraries::nccl::env_plugin::{self, VARIABLE, is_asked};
use crate::libraries::nccl::installed;
use crate::libraries::nccl::version::READS_ENV_PLUGIN;

/// The decision about the env plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvPlugin {
    Used,
    /// The key `nccl-env-plugin` is `off`.
    Off,
    /// NCCL does not use it, for this reason.
    NotUsed(String),
}

impl EnvPlugin {
    /// Returns why NCCL does not use the plugin.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            EnvPlugin::Used => None,
            EnvPlugin::Off => Some("nccl-env-plugin is off"),
            EnvPlugin::NotUsed(why) => Some(why),
        }
    }
}

pub(crate) fn decide(facts: &Facts, user: &User, options: &Options, settings: &[Setting]) -> EnvPlugin {
    if options.nccl_env_plugin == EnvPluginOption::Off {
        return EnvPlugin::Off;
    }
    why_not(facts, user, options, settings).map_or(EnvPlugin::Used, EnvPlugin::NotUsed)
}

fn why_not(facts: &Facts, user: &User, options: &Options, settings: &[Setting]) -> Option<String> {
    let library = Flavor::of(facts);
    // The plugin would have no decision to answer with.
    if !settings.iter().any(is_answer) {
        return Some(format!("rdma-init fills in no variable of {library}'s"));
    }
    // A release that only the environment names (`NCCL_VERSION`) is not certain enough.
    let releases = installed::image(facts).and_then(|_| installed::releases(facts).ok()).unwrap_or_default();
    let Some(oldest) = releases.iter().min() else {
        return Some(format!("no {library} was found, or the release of one is not known"));
    };
    if *oldest < READS_ENV_PLUGIN {
        return Some(format!("a process may load {library} {oldest}, which asks no plugin"));
    }
    if user.get(VARIABLE).is_some() || options.keep.contains(VARIABLE) {
        return Some("you set or keep NCCL_ENV_PLUGIN".to_owned());
    }
    // Without RDMA, there is no forecast, so this asks the model directly which plugin NCCL would load.
    let foreign = releases.iter().find_map(|version| env_plugin::loaded(facts, |_| None, *version))?;
    Some(format!("{library} loads {foreign} by itself"))
}

/// Returns whether the plugin can answer with a setting. Variables that the configuration sets belong to the
/// user.
pub(crate) fn is_answer(setting: &Setting) -> bool {
    setting.outcome == SettingOutcome::Filled
        && setting.source != Source::Configuration
        && is_asked(&setting.variable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::settings::{Settings, UserSetting};
    use crate::image::Image;
    use crate::image::library::Library;

    fn facts(versions: &[Option<&str>]) -> Facts {
        let library = |version: &Option<&str>| Library {
            path: format!("/usr/lib/{version:?}/libnccl.so.2").into(),
            loads_as: vec!["libnccl.so.2".to_owned()],
            version: version.map(str::to_owned),
            ..Library::default()
        };
        let image = Image { nccl: versions.iter().map(library).collect(), ..Image::default() };
        Facts { image: Some(image), ..Facts::default() }
    }

    fn filled(variable: &str, source: Source) -> Setting {
        Setting::filled(variable, "=mlx5_1", source, "published")
    }

    fn decided(facts: &Facts, options: &Options) -> EnvPlugin {
        decide(facts, &User::new(facts, options), options, &[filled("NCCL_IB_HCA", Source::Facts)])
    }

    #[test]
    fn it_is_used_where_every_release_asks_and_no_other_is_named() {
        let auto = Options::default();
        let with = |versions: &[Option<&str>]| decided(&facts(versions), &auto);
        assert_eq!(with(&[Some("2.28.7")]), EnvPlugin::Used);
        assert_eq!(with(&[Some("2.30.7"), Some("2.28.9")]), EnvPlugin::Used);
        let not_used = |why: &str| EnvPlugin::NotUsed(why.to_owned());
        let old = not_used("a process may load NCCL 2.27.7, which asks no plugin");
        assert_eq!(with(&[Some("2.30.7"), Some("2.27.7")]), old);
        for unknown in [&[][..], &[None], &[Some("2.30.7"), None]] {
            assert_eq!(
                with(unknown),
                not_used("no NCCL was found, or the release of one is not known"),
                "{unknown:?}"
            );
        }
        let new = facts(&[Some("2.30.7")]);
        let off = Options { nccl_env_plugin: EnvPluginOption::Off, ..Options::default() };
        assert_eq!(decided(&new, &off), EnvPlugin::Off);
        for settings in [
            vec![],
            vec![filled("UCX_NET_DEVICES", Source::Facts)],
            vec![filled("NCCL_IB_HCA", Source::Configuration)],
        ] {
            let decided = decide(&new, &User::new(&new, &auto), &auto, &settings);
            assert_eq!(decided, not_used("rdma-init fills in no variable of NCCL's"), "{settings:?}");
        }
        let mut unsearched = Facts::default();
        unsearched.platform.nccl_version = Some("2.30.7".to_owned());
        assert_eq!(
            decided(&unsearched, &auto),
            not_used("no NCCL was found, or the release of one is not known")
        );
        for value in ["", "none", "/opt/mine.so"] {
            let setting = UserSetting::new(VARIABLE, value, Source::Environment);
            let facts = Facts { settings: Settings(vec![setting]), ..new.clone() };
            assert_eq!(decided(&facts, &auto), not_used("you set or keep NCCL_ENV_PLUGIN"), "{value:?}");
        }
        let keep = Options { keep: [VARIABLE.to_owned()].into(), ..auto.clone() };
        assert_eq!(decided(&new, &keep), not_used("you set or keep NCCL_ENV_PLUGIN"));
        let path = "/opt/site/lib/libnccl-env.so";
        let mut with_foreign = new.clone();
        with_foreign.image.as_mut().unwrap().env_plugins.push(Library {
            path: path.into(),
            loads_as: vec!["libnccl-env.so".to_owned()],
            ..Library::default()
        });
        assert_eq!(decided(&with_foreign, &auto), not_used(&format!("NCCL loads {path} by itself")));
    }

    #[test]
    fn rccl_asks_it_from_the_release_on_that_has_taken_it_over() {
        let auto = Options::default();
        let with = |versions: &[Option<&str>]| {
            let mut facts = facts(versions);
            let image = facts.image.as_mut().unwrap();
            image.rccl = std::mem::take(&mut image.nccl);
            image.rccl.iter_mut().for_each(|library| library.loads_as = vec!["librccl.so.1".to_owned()]);
            decided(&facts, &auto)
        };
        assert_eq!(with(&[Some("2.30.4")]), EnvPlugin::Used);
        let not_used = |why: &str| EnvPlugin::NotUsed(why.to_owned());
        let old = not_used("a process may load RCCL 2.28.3, which asks no plugin");
        for versions in [&[Some("2.28.3")][..], &[Some("2.30.4"), Some("2.28.3")]] {
            assert_eq!(with(versions), old, "{versions:?}");
        }
        assert_eq!(with(&[None]), not_used("no RCCL was found, or the release of one is not known"));
    }
}
