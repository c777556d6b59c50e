//! Reads the host to decide for: this container, or one that was captured elsewhere.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::config::Config;
use crate::demo;
use crate::env_plugin::copies;
use crate::facts::document::Document;
use crate::facts::environment::{Environment, Filled};
use crate::facts::settings::{self, Settings, UserSetting};
use crate::facts::start::Start;
use crate::facts::{self, Facts, Need, Reader, Sources, extra, net, rdma, rdma_namespace, rtnetlink};
use crate::image::packages::IsPackage;
use crate::libraries::{self, nccl::conf};
use crate::nearest::nearest;
use crate::plan::{self, ProfileOption};
use crate::profiles::Profiles;
use crate::resolve;
use crate::state::find::find;
use crate::text::{condensed_to, visible};

/// In bytes: the largest facts document. A large host's has a few hundred thousand.
const LONGEST: u64 = 8 * 1024 * 1024;

/// The most objects and lists in a facts document: an empty one takes two bytes in the text but some hundred
/// in memory.
const OBJECTS: usize = 100_000;

/// Returns all profiles; the configured one must be among them.
///
/// # Errors
/// Fails if a profile is broken or none has the configured name.
pub fn profiles(config: &Config) -> anyhow::Result<Profiles> {
    let profiles = Profiles::load(config.profile_dir.as_deref())?;
    if let ProfileOption::Named(name) = &config.profile
        && profiles.get(name).is_none()
    {
        bail!(
            "the key profile has the value {name:?} in {}: there is no such profile; {}",
            config.profile_source,
            advice_on_profile(name, &profiles, &["auto", "none"])
        );
    }
    Ok(profiles)
}

/// Returns a sentence if the directory of the user's profiles contains none.
pub fn no_profile_in_folder(config: &Config, profiles: &Profiles) -> Option<String> {
    let folder = config.profile_dir.as_ref().filter(|_| profiles.is_folder_empty())?;
    Some(format!(
        "{} (profile-dir) contains no profile: it has no file *.toml, so only the built-in profiles count.",
        folder.display()
    ))
}

/// Returns text with the profile that the user may have meant, if there is one, and all profiles. `also`
/// contains other words that the user may have meant.
pub fn advice_on_profile(name: &str, profiles: &Profiles, also: &[&str]) -> String {
    let names: Vec<&str> = profiles.names().collect();
    let all = names.join(", ");
    // At least half of a short name must be right.
    match nearest(names.iter().chain(also).copied(), name, 3.min(name.len() / 2)) {
        Some(meant) => visible(&format!("did you mean {meant}? There are {all}")),
        None => visible(&format!("there are {all}")),
    }
}

/// Returns the variables that rdma-init put into this environment when the container started and that are
/// still there: based on the state, or, if this process may not trust any state, on the marker beside them.
pub fn filled_at_start(config: &Config, profiles: &Profiles, environment: &Environment) -> Vec<Filled> {
    // When a container starts, its environment usually has no such variable, so there is nothing to look for.
    if !environment.names().any(|name| profiles.may_fill(name) || libraries::may_fill(name)) {
        return Vec::new();
    }
    let found = find(&config.state_dir);
    let is_there = |one: &Filled| environment.get(&one.variable) == Some(&one.value);
    found.map_or_else(
        |_| copies::of_own_start(environment),
        |found| found.run.filled_itself().filter(is_there).collect(),
    )
}

/// Returns the facts of this container.
pub fn live_facts(profiles: &Profiles, environment: &Environment, filled: &[Filled]) -> Facts {
    let folder = std::env::current_dir().ok();
    all_facts(profiles, Start { folder: folder.as_deref(), filled, ..Start::from(environment) })
}

/// Returns the facts of this container, for a command that starts like this.
pub fn all_facts(profiles: &Profiles, start: Start) -> Facts {
    live(profiles, start, true, Some(libraries::is_package), |_, _| Need::NetworkAndImage)
}

/// Does the same as [`all_facts`], and adds the facts that only a self-test needs.
pub fn facts_to_prove(profiles: &Profiles, start: Start) -> Facts {
    let mut facts = all_facts(profiles, start);
    add_extra(&mut facts);
    facts
}

/// Adds the facts that only a self-test needs, for this container.
pub fn add_extra(facts: &mut Facts) {
    extra::add(facts, &Reader::new(Path::new("/")));
}

/// Returns only this container's HCAs and network, for a command that runs often.
pub fn fabric_facts() -> Facts {
    let reader = Reader::new(Path::new("/"));
    let net = net::read(&reader, net::system_addresses(), rtnetlink::system_routing);
    let rdma = rdma::read(&reader, &rdma::Looked::for_gids(&net, None));
    Facts { net, rdma, ..Facts::default() }
}

/// Returns the facts of this container that the decision can depend on.
pub fn needed_facts(profiles: &Profiles, start: Start, config: &Config) -> Facts {
    let options = config.plan_options();
    let is_package = config.libraries.is_package();
    live(profiles, start, false, is_package, |facts, devices| plan::need(facts, devices, profiles, &options))
}

/// Returns whether a variable's value matters, in addition to those that always do.
fn is_setting(profiles: &Profiles, variable: &str) -> bool {
    profiles.reads(variable) || libraries::of_variable(variable).is_some()
}

/// How long DNS may take to answer. A server that answers at all takes a few milliseconds.
const LOOK_UP: Duration = Duration::from_secs(1);

fn look_up(host: &str) -> Result<Vec<IpAddr>, String> {
    let found = resolve::addresses(host, 0, Instant::now() + LOOK_UP)?;
    Ok(found.iter().map(SocketAddr::ip).collect())
}

fn live(
    profiles: &Profiles,
    start: Start,
    image_in_any_case: bool,
    is_package: Option<IsPackage>,
    need: impl Fn(&Facts, &[String]) -> Need,
) -> Facts {
    let sources = Sources {
        root: Path::new("/"),
        start,
        parse_conf: conf::assignments,
        is_setting: &|variable| is_setting(profiles, variable),
        may_write: libraries::may_write,
        is_marker: &|variable| profiles.is_marker(variable),
        files: &profiles.files(),
        addresses: net::system_addresses,
        routing: rtnetlink::system_routing,
        look_up,
        image_in_any_case,
        is_package,
        rdma_mode: rdma_namespace::system_mode,
    };
    facts::read(sources, need)
}

/// Returns the variables that NCCL would read in a process with this environment: those of the environment,
/// then those of the conf files.
pub fn settings(environment: &Environment) -> Settings {
    let reader = Reader::new(Path::new("/"));
    settings::read(&reader, Start::from(environment), None, conf::assignments, libraries::may_write, |_| {
        false
    })
    .settings
}

/// Returns another container's facts from a document or from an embedded one (`demo:NAME`).
///
/// # Errors
/// Fails if the document cannot be read or is not a facts document.
pub fn captured_facts(source: &Path) -> anyhow::Result<Facts> {
    let text = match source.to_str().and_then(|source| source.strip_prefix("demo:")) {
        Some(name) => demo::host(name)
            .with_context(|| {
                format!("there is no demo host {name:?}; there are {}", demo::names().join(", "))
            })?
            .to_owned(),
        None => read(source).with_context(|| format!("cannot read the facts in {}", source.display()))?,
    };
    Document::parse(&text)
        .map_err(|why| anyhow::anyhow!("cannot use the facts in {}: {why}", source.display()))
}

/// Returns a captured host's facts with the variables of this environment, and a sentence about these variables if
/// that makes a difference.
///
/// A document with rdma-init's configuration is a whole case, and comes out as it was captured: only flags count
/// over it (`--set`). Other documents are made or reduced by hand, and take the variables from here.
pub fn with_environment(
    mut facts: Facts,
    profiles: &Profiles,
    environment: &Environment,
    config: &Config,
) -> (Facts, Option<String>) {
    // The root is empty, because this machine's conf files do not belong to the other container.
    let here = settings::read(
        &Reader::nowhere(),
        Start::from(environment),
        None,
        conf::assignments,
        libraries::may_write,
        |variable| is_setting(profiles, variable),
    )
    .settings;
    let is_other = |one: &&UserSetting| {
        facts.settings.get(&one.variable).is_none_or(|captured| captured.value != one.value)
    };
    let names: Vec<&str> = here.0.iter().filter(is_other).map(|one| one.variable.as_str()).collect();
    let names = visible(&condensed_to(&names, SHOWN));
    let is_whole = facts.configuration.is_some();
    let sentence = match (names.is_empty(), is_whole) {
        (true, _) => None,
        (false, true) => Some(format!(
            "variables of this shell do not count for the captured host: {names}. To try a value there, use --set NAME=VALUE."
        )),
        (false, false) => Some(format!(
            "variables of this shell count for the captured host, over its own: {names}. To do without them, unset them."
        )),
    };
    if is_whole {
        let is_set_anew = |name: &str| config.set_by_flags().any(|set| set == name);
        facts.settings.0.retain(|setting| !is_set_anew(&setting.variable));
    } else {
        facts.settings = facts.settings.under(here);
    }
    (facts, sentence)
}

/// The most variables to name.
const SHOWN: usize = 8;

fn read(path: &Path) -> std::io::Result<String> {
    let source: Box<dyn Read> =
        if path == Path::new("-") { Box::new(std::io::stdin()) } else { Box::new(File::open(path)?) };
    let mut bytes = Vec::new();
    source.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(std::io::Error::other(format!("longer than {LONGEST} bytes")));
    }
    // A list may stand for an object with all its defaults.
    if memchr::memchr2_iter(b'{', b'[', &bytes).count() > OBJECTS {
        return Err(std::io::Error::other(format!(
            "more than {OBJECTS} objects and lists, which no host has"
        )));
    }
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("not UTF-8 text"))
}
