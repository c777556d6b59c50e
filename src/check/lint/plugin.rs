//! Net plugins that are named or needed, and cannot be loaded.

use super::{Subject, shown};
use crate::facts::image::Image;
use crate::nccl::predict::Transport;
use crate::nccl::{libraries, plugin};
use crate::plan::{Fabric, Finding};

const VARIABLE: &str = "NCCL_NET_PLUGIN";

pub fn findings(subject: &Subject) -> Vec<Finding> {
    // Where no NCCL was found, the plugins are not to be found either.
    let Some(image) = libraries::image(subject.facts) else { return Vec::new() };
    let mut findings = Vec::new();
    findings.extend(named(subject, image));
    findings.extend(needed(subject, image));
    findings
}

fn named(subject: &Subject, image: &Image) -> Option<Finding> {
    let setting = subject.user.get(VARIABLE).filter(|setting| !setting.value.is_empty())?;
    if setting.value.eq_ignore_ascii_case("none") || setting.value.eq_ignore_ascii_case("STATIC_PLUGIN") {
        return None;
    }
    let files = plugin::files(Some(&setting.value), subject.version());
    let missing: Vec<String> = files
        .iter()
        .filter(|names| !names.iter().any(|name| libraries::plugin(subject.facts, name).is_some()))
        .map(|names| names.join(", "))
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(
        Finding::warning(
            "plugin-not-found",
            format!(
                "{}: the dynamic loader finds no {}; {} goes on with its own transports, without a word.",
                shown(setting),
                missing.join("; no "),
                subject.nccl()
            ),
        )
        .with_fix(elsewhere(image).unwrap_or_else(|| {
            format!("Install the plugin in the image, or remove {VARIABLE} (or set it to none).")
        })),
    )
}

/// EFA and the like, which NCCL's own transports do not know.
fn needed(subject: &Subject, image: &Image) -> Option<Finding> {
    let Fabric::Plugin(_) = subject.plan.fabric else { return None };
    let Transport::Sockets { .. } = subject.prediction()?.transport else { return None };
    Some(
        Finding::error(
            "no-plugin",
            "The devices here need a net plugin (libnccl-net.so), and the dynamic loader finds none: the job will run on TCP.",
        )
        .with_fix(elsewhere(image).unwrap_or_else(|| "Install the plugin in the image (aws-ofi-nccl for EFA).".to_owned())),
    )
}

/// One that is there, and only a path leads to.
fn elsewhere(image: &Image) -> Option<String> {
    let library = image.net_plugins.iter().find(|library| library.loads_as.is_empty())?;
    let folder = library.reached.first()?.path.parent()?;
    Some(format!("Add {} to LD_LIBRARY_PATH: there is {}.", folder.display(), library.path.display()))
}
