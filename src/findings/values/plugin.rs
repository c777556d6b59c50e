//! Net plugins that a variable names or the devices need, but that NCCL cannot load.

use super::{Decided, shown};
use crate::finding::{Finding, Id};
use crate::image::Image;
use crate::image::library::{Library, LibraryFamily, LibraryPath, MissingLibrary};
use crate::libraries::nccl::plugin::VARIABLE;
use crate::libraries::nccl::predict::{PortUse, Transport};
use crate::libraries::nccl::{installed, network, plugin};
use crate::plan::Fabric;
use crate::profiles::{self, Profile};

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    // If no NCCL was found, the image was not searched for plugins.
    let Some(image) = installed::image(decided.facts) else { return Vec::new() };
    // Each cause gets one finding: the one that names the cause. Until the platform's script has run, the
    // loader may not know the plugin's directory.
    let waits_for_script =
        decided.profile.script.as_ref().is_some_and(|script| decided.user.get(&script.sets).is_none());
    let needed = || needed(decided, image).filter(|_| !waits_for_script);
    let finding = named(decided, image).or_else(needed);
    let instead = if needs_plugin(decided) { taken_instead(decided) } else { Vec::new() };
    finding.map(|finding| finding.about_ports(instead)).into_iter().collect()
}

fn named(decided: &Decided, image: &Image) -> Option<Finding> {
    let setting = decided.user.get(VARIABLE).filter(|setting| !setting.value.is_empty())?;
    if setting.value.eq_ignore_ascii_case("none") || plugin::is_static(&setting.value) {
        return None;
    }
    let files = plugin::files(Some(&setting.value), decided.version());
    let missing: Vec<&Vec<String>> = files
        .iter()
        .filter(|names| !names.iter().any(|name| installed::plugin(decided.facts, name).is_some()))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let unloadable_plugin =
        missing.iter().copied().flatten().find_map(|name| unloadable_plugin(decided, name));
    let what = match &unloadable_plugin {
        Some(unloadable_plugin) => format!("{}: {}", shown(setting), unloadable_plugin.why()),
        None => {
            let names: Vec<String> = missing.iter().map(|names| names.join(" or ")).collect();
            format!("{}: the dynamic loader finds no {}", shown(setting), names.join("; no "))
        }
    };
    let finding = match needs_plugin(decided) {
        true => Finding::error(
            Id::PluginNotFound,
            format!("{what}. The devices here need a net plugin: {}.", consequence(decided)),
        ),
        false => Finding::warning(
            Id::PluginNotFound,
            format!("{what}; {} silently continues with its own transports.", decided.nccl()),
        ),
    };
    let fix =
        unloadable_plugin.map(|unloadable_plugin| unloadable_plugin.fix(image)).or_else(|| elsewhere(image));
    // The name of a network is not the name of a file.
    let is_network = network::is_of_some_plugin(&setting.value);
    let fix = match fix {
        None if is_network => format!(
            "Remove {VARIABLE}: it names a file, such as ofi for libnccl-net-ofi.so, and {} is the name of a network, which belongs in NCCL_NET.",
            setting.value
        ),
        fix => fix.unwrap_or_else(|| match needs_plugin(decided) {
            true => match installed::plugin(decided.facts, plugin::DEFAULT) {
                Some(file) => format!("Remove {VARIABLE}: {} then loads {file}.", decided.library()),
                None => get(decided, image),
            },
            false => format!("Install the plugin in the image, or remove {VARIABLE} (or set it to none)."),
        }),
    };
    Some(finding.about_variables([VARIABLE]).with_fix(fix))
}

/// Reports devices that NCCL's own transports cannot use, such as EFA.
fn needed(decided: &Decided, image: &Image) -> Option<Finding> {
    // If the user requests TCP, the module `network` reports it. On one node, the devices have nothing to do.
    let has_one_node = decided.facts.platform.nodes.as_ref().is_some_and(|nodes| nodes.count == 1);
    if !needs_plugin(decided) || decided.user.get("NCCL_NET").is_some() || has_one_node {
        return None;
    }
    let by_user = decided.user.get(VARIABLE).filter(|setting| {
        setting.value.eq_ignore_ascii_case("none")
            || plugin::files(Some(&setting.value), decided.version()).is_empty()
    });
    if let Some(setting) = by_user {
        let message = format!(
            "{}: {} loads no net plugin then, and the devices here need one: {}.",
            shown(setting),
            decided.nccl(),
            consequence(decided)
        );
        return Some(
            Finding::error(Id::NoPlugin, message)
                .about_variables([VARIABLE])
                .with_fix(format!("Remove {VARIABLE}.")),
        );
    }
    if let Some(unloadable_plugin) = unloadable_plugin(decided, plugin::DEFAULT) {
        let message = format!(
            "The devices here need a net plugin, and {}: {} silently continues without it, because NCCL_NET is not set, and {}.",
            unloadable_plugin.why(),
            decided.nccl(),
            consequence(decided)
        );
        return Some(
            Finding::error(Id::NoPlugin, message)
                .about_variables(["NCCL_NET"])
                .with_fix(unloadable_plugin.fix(image)),
        );
    }
    Some(
        Finding::error(
            Id::NoPlugin,
            format!(
                "The devices here need a net plugin (libnccl-net.so), and the dynamic loader finds none: {}.",
                consequence(decided)
            ),
        )
        .with_fix(get(decided, image)),
    )
}

/// Returns how NCCL gets the plugin that the devices need.
pub(super) fn get(decided: &Decided, image: &Image) -> String {
    by_name(decided, image).or_else(|| elsewhere(image)).unwrap_or_else(|| install(&decided.profile))
}

/// Returns the fix if the dynamic loader finds the plugin, but not under the name that NCCL tries without a variable.
fn by_name(decided: &Decided, image: &Image) -> Option<String> {
    let named = |library: &Library| {
        let mut names = library.loads_as.iter().filter(|_| library.missing.is_empty());
        names.find_map(|name| name.strip_prefix("libnccl-net-")?.strip_suffix(".so").map(str::to_owned))
    };
    let (library, name) = image.net_plugins.iter().find_map(|library| Some((library, named(library)?)))?;
    Some(format!(
        "Set {VARIABLE}={name}: the plugin is {}, and without the variable, {} tries only {}.",
        library.path.display(),
        decided.library(),
        plugin::DEFAULT
    ))
}

/// Returns how to get the plugin into the container, in the platform's words if it has its own plugin.
fn install(profile: &Profile) -> String {
    let over_interfaces = matches!(profile.fabric, Some(profiles::Fabric::PluginOverInterfaces(_)));
    let of_platform = profile.hint.clone().filter(|_| over_interfaces);
    of_platform.unwrap_or_else(|| "Install the plugin in the image (aws-ofi-nccl for EFA).".to_owned())
}

/// Returns whether only a plugin can use the devices, but NCCL will load no plugin.
fn needs_plugin(decided: &Decided) -> bool {
    let is_without = match decided.prediction().map(|prediction| &prediction.transport) {
        Some(Transport::Sockets { .. }) => true,
        Some(transport) => decided.plan.taken_instead(transport).is_some(),
        None => false,
    };
    matches!(decided.plan.fabric, Fabric::Plugin(_) | Fabric::PluginOverInterfaces(_)) && is_without
}

/// Returns the names of the ports that NCCL uses without the plugin.
fn taken_instead(decided: &Decided) -> Vec<String> {
    let transport = decided.prediction().map(|prediction| &prediction.transport);
    let taken = transport.and_then(|transport| decided.plan.taken_instead(transport));
    taken.unwrap_or_default().iter().map(PortUse::name).collect()
}

/// Returns what happens without the plugin.
fn consequence(decided: &Decided) -> String {
    let taken = taken_instead(decided);
    let reach = match taken.as_slice() {
        [] => return "the job will run on TCP".to_owned(),
        [_] => "reaches",
        _ => "reach",
    };
    format!(
        "{} takes {} instead, which {reach} no other node, and its connections fail",
        decided.library(),
        taken.join(", ")
    )
}

/// A plugin that the dynamic loader finds but cannot load.
struct UnloadablePlugin<'a> {
    library: &'a Library,
    /// The first library that the plugin needs but that is not found.
    needs: &'a MissingLibrary,
}

fn unloadable_plugin<'a>(decided: &Decided<'a>, name: &str) -> Option<UnloadablePlugin<'a>> {
    let library = installed::plugin_file(decided.facts, name)?;
    Some(UnloadablePlugin { needs: library.missing.first()?, library })
}

impl UnloadablePlugin<'_> {
    /// Returns why the loader cannot load the plugin, as a clause.
    fn why(&self) -> String {
        let path = self.library.path.display();
        let MissingLibrary { name, lacks } = self.needs;
        match lacks {
            Some(version) => format!(
                "{path} cannot be loaded, because the {name} that the dynamic loader finds for it is too old: it has no {version}"
            ),
            None => {
                format!("{path} cannot be loaded, because the dynamic loader finds no {name} for it")
            }
        }
    }

    fn fix(&self, image: &Image) -> String {
        let MissingLibrary { name, lacks } = self.needs;
        if lacks.is_some() {
            return format!(
                "Let the dynamic loader find the {name} that belongs to the plugin: name its directory first in LD_LIBRARY_PATH (AWS's installer for EFA puts both in /opt/amazon), or install a later {name}."
            );
        }
        let there = image.libfabric.iter().chain(&image.libibverbs).find_map(|library| {
            let is_it =
                |reach: &&LibraryPath| reach.path.file_name().is_some_and(|file| file == name.as_str());
            library.reached.iter().find(is_it)
        });
        match there.and_then(|reach| reach.path.parent()) {
            Some(folder) => format!("Add {} to LD_LIBRARY_PATH: {name} is there.", folder.display()),
            None if LibraryFamily::Fabric.has(name) => format!(
                "Install in the image the {name} that comes with the plugin (AWS's installer for EFA has both)."
            ),
            None => format!("Install the package of {name} in the image."),
        }
    }
}

/// Returns the fix if the image contains a plugin outside the directories that the loader searches.
fn elsewhere(image: &Image) -> Option<String> {
    let library = image.net_plugins.iter().find(|library| library.loads_as.is_empty())?;
    let folder = library.reached.first()?.path.parent()?;
    Some(format!(
        "Add {} to LD_LIBRARY_PATH: the plugin is there ({}).",
        folder.display(),
        library.path.display()
    ))
}
