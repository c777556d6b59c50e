//! Net plugins that are named or needed, and cannot be loaded.

use super::{Subject, shown};
use crate::facts::image::Image;
use crate::facts::image::library::{Library, Reach};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::predict::Transport;
use crate::libraries::nccl::{installed, plugin};
use crate::plan::Fabric;

const VARIABLE: &str = "NCCL_NET_PLUGIN";

pub fn findings(subject: &Subject) -> Vec<Finding> {
    // Where no NCCL was found, the image is not searched for plugins.
    let Some(image) = installed::image(subject.facts) else { return Vec::new() };
    // For one cause there is one finding: that which names it.
    named(subject, image).or_else(|| needed(subject, image)).into_iter().collect()
}

fn named(subject: &Subject, image: &Image) -> Option<Finding> {
    let setting = subject.user.get(VARIABLE).filter(|setting| !setting.value.is_empty())?;
    if setting.value.eq_ignore_ascii_case("none") || setting.value.eq_ignore_ascii_case("STATIC_PLUGIN") {
        return None;
    }
    let files = plugin::files(Some(&setting.value), subject.version());
    let missing: Vec<&Vec<String>> = files
        .iter()
        .filter(|names| !names.iter().any(|name| installed::plugin(subject.facts, name).is_some()))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let crippled = missing.iter().copied().flatten().find_map(|name| crippled(subject, name));
    let what = match &crippled {
        Some(crippled) => format!("{}: {}", shown(setting), crippled.why()),
        None => {
            let names: Vec<String> = missing.iter().map(|names| names.join(" or ")).collect();
            format!("{}: the dynamic loader finds no {}", shown(setting), names.join("; no "))
        }
    };
    let finding = match needs_plugin(subject) {
        true => Finding::error(
            Id::PluginNotFound,
            format!("{what}. The devices here need a net plugin: the job will run on TCP."),
        ),
        false => Finding::warning(
            Id::PluginNotFound,
            format!("{what}; {} goes on with its own transports, and does not say so.", subject.nccl()),
        ),
    };
    let fix = crippled.map(|crippled| crippled.fix(image)).or_else(|| elsewhere(image));
    Some(finding.about_variables([VARIABLE]).with_fix(fix.unwrap_or_else(|| {
        format!("Install the plugin in the image, or remove {VARIABLE} (or set it to none).")
    })))
}

/// Devices such as EFA, which NCCL's own transports cannot use.
fn needed(subject: &Subject, image: &Image) -> Option<Finding> {
    // Where the user asks for TCP, `network` says so.
    if !needs_plugin(subject) || subject.user.get("NCCL_NET").is_some() {
        return None;
    }
    let by_user = subject.user.get(VARIABLE).filter(|setting| {
        setting.value.eq_ignore_ascii_case("none")
            || plugin::files(Some(&setting.value), subject.version()).is_empty()
    });
    if let Some(setting) = by_user {
        let message = format!(
            "{}: {} loads no net plugin then, and the devices here need one: the job will run on TCP.",
            shown(setting),
            subject.nccl()
        );
        return Some(
            Finding::error(Id::NoPlugin, message)
                .about_variables([VARIABLE])
                .with_fix(format!("Remove {VARIABLE}.")),
        );
    }
    if let Some(crippled) = crippled(subject, plugin::DEFAULT) {
        let message = format!(
            "The devices here need a net plugin, and {}: {} goes on without it and does not say so, because NCCL_NET is not set, and the job will run on TCP.",
            crippled.why(),
            subject.nccl()
        );
        return Some(
            Finding::error(Id::NoPlugin, message).about_variables(["NCCL_NET"]).with_fix(crippled.fix(image)),
        );
    }
    Some(
        Finding::error(
            Id::NoPlugin,
            "The devices here need a net plugin (libnccl-net.so), and the dynamic loader finds none: the job will run on TCP.",
        )
        .with_fix(elsewhere(image).unwrap_or_else(|| "Install the plugin in the image (aws-ofi-nccl for EFA).".to_owned())),
    )
}

/// Whether only a plugin can use the devices, and NCCL will load none.
fn needs_plugin(subject: &Subject) -> bool {
    let transport = subject.prediction().map(|prediction| &prediction.transport);
    matches!(subject.plan.fabric, Fabric::Plugin(_)) && matches!(transport, Some(Transport::Sockets { .. }))
}

/// A plugin that the dynamic loader finds, and cannot load.
struct Crippled<'a> {
    library: &'a Library,
    /// The first library that it needs and that is not found.
    needs: &'a str,
}

fn crippled<'a>(subject: &Subject<'a>, name: &str) -> Option<Crippled<'a>> {
    let library = installed::plugin_file(subject.facts, name)?;
    Some(Crippled { needs: library.missing.first()?, library })
}

impl Crippled<'_> {
    /// Why the loader cannot load it, as a clause of a sentence.
    fn why(&self) -> String {
        let path = self.library.path.display();
        match self.version() {
            Some((name, version)) => format!(
                "{path} cannot be loaded, because the {name} that the dynamic loader finds for it is too old: it has no {version}"
            ),
            None => {
                format!("{path} cannot be loaded, because the dynamic loader finds no {} for it", self.needs)
            }
        }
    }

    /// The library that is too old, and the version of symbols that it lacks.
    fn version(&self) -> Option<(&str, &str)> {
        self.needs.strip_suffix(')')?.split_once(" (")
    }

    fn fix(&self, image: &Image) -> String {
        if let Some((name, _)) = self.version() {
            return format!(
                "Let the dynamic loader find the {name} that belongs to the plugin: name its folder first in LD_LIBRARY_PATH (AWS's installer for EFA puts both in /opt/amazon), or install a later {name}."
            );
        }
        let there = image.libfabric.iter().chain(&image.libibverbs).find_map(|library| {
            let is_it = |reach: &&Reach| reach.path.file_name().is_some_and(|name| name == self.needs);
            library.reached.iter().find(is_it)
        });
        match there.and_then(|reach| reach.path.parent()) {
            Some(folder) => format!("Add {} to LD_LIBRARY_PATH: {} is there.", folder.display(), self.needs),
            None if self.needs.starts_with("libfabric") => format!(
                "Install in the image the {} that comes with the plugin (AWS's installer for EFA has both).",
                self.needs
            ),
            None => format!("Install the package of {} in the image.", self.needs),
        }
    }
}

/// What to do where a plugin is in the image, but outside the folders that the loader searches.
fn elsewhere(image: &Image) -> Option<String> {
    let library = image.net_plugins.iter().find(|library| library.loads_as.is_empty())?;
    let folder = library.reached.first()?.path.parent()?;
    Some(format!(
        "Add {} to LD_LIBRARY_PATH: the plugin is there ({}).",
        folder.display(),
        library.path.display()
    ))
}
