//! Saves the decision for processes that enter the container later.

use std::cell::LazyCell;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::apply::amend::InPlace;
use crate::apply::state::{FilesOrigin, RefusedFolder, WrittenFiles};
use crate::apply::{nccl_conf, node_list, propagate, state};
use crate::block;

use crate::config::Config;
use crate::env_plugin::answer::MARKER;
use crate::env_plugin::decision;
use crate::facts::environment::Environment;
use crate::facts::identity::{Identity, started};
use crate::facts::node_list::Holds;
use crate::facts::{Facts, Reader, document, home};
use crate::finding::{Phase, Source};
use crate::findings::nccl_conf::not_written;
use crate::libraries::may_write;
use crate::libraries::nccl::env_plugin::VARIABLE;
use crate::log::{Log, say};
use crate::pipeline::decide::names_own_plugin;
use crate::pipeline::own_program;
use crate::plan::{EnvPlugin, Plan, SCHEMA, Setting, SettingOutcome};
use crate::report;
use crate::report::environment;
use crate::report::environment::EnvFormat;
use crate::report::headline::{headline, public_headline};
use crate::report::plan::{Document, Memlock};
use crate::state::find::{Found, OWN_PLACE, find};
use crate::state::harmless::is_harmless;
use crate::state::run::{Reason, Run, Unwatched};
use crate::state::{NCCL_CONF, StateDir};
use crate::sys::user;
use crate::text::{grouped, visible};

/// The decision to save.
pub(super) struct Decided<'a> {
    pub facts: &'a Facts,
    pub plan: &'a Plan,
    pub memlock: Option<&'a Memlock>,
    /// Whether the self-test passed, if there was one.
    pub verdict: Option<bool>,
    /// Whether rdma-init's own init is PID 1.
    pub by_init: bool,
    pub unwatched: Option<Unwatched>,
}

/// What a start saved.
#[derive(Default)]
pub(super) struct SavedByStart {
    /// The bytes for rdma-init's own init to confirm.
    pub state: Vec<u8>,
    /// Variables that make NCCL load the env plugin; the command gets them, too.
    pub of_plugin: Vec<(String, String)>,
}

/// Writes the state directory, `/etc/nccl.conf` and similar files in a container, and every other place where
/// the user wants the variables (`propagate`). Says what cannot be written if a user could miss it; the
/// command starts anyway.
#[must_use]
pub(super) fn leave(config: &Config, decided: Decided, log: &Log) -> SavedByStart {
    let filled: Vec<(&str, &str)> = decided.plan.public().collect();
    let writes_conf =
        config.write_nccl_conf.unwrap_or_else(|| decided.by_init || Identity::own().is_container());
    // A command that a user starts by hand in a container ends before the container does.
    let standing = match decided.by_init {
        true => None,
        false => find(&config.state_dir).ok().filter(|found| stands(&found.run)),
    };
    let standing = match standing {
        Some(Found { doubt: None, run, .. }) => {
            let of_plugin = match decided.plan.env_plugin {
                EnvPlugin::Used => of_start(&run),
                EnvPlugin::Off | EnvPlugin::NotUsed(_) => silenced(&decided, run.env_plugin().is_some()),
            };
            return SavedByStart { of_plugin, ..SavedByStart::default() };
        }
        // The state may belong to another user, who must not keep this start from writing where no other user
        // can.
        doubtful => doubtful.and_then(|found| found.folder),
    };
    let of_plugin = |library: Option<&Path>| of_plugin(decided.plan, library);
    // A command of PID 1 lasts as long as the container, which `Identity` tells from others.
    let pid_started = LazyCell::new(|| match decided.by_init {
        true => None,
        false => started(nix::unistd::getpid().as_raw()),
    });
    let run = |of_plugin: &[(String, String)]| run(&decided, *pid_started, of_plugin);
    let (left, refused) = state::write(&config.state_dir, standing.as_deref(), |library| {
        let of_plugin = of_plugin(library);
        files(&run(&of_plugin), &decided, &filled, &of_plugin)
    });
    let of_plugin = of_plugin(left.as_ref().and_then(|left| left.env_plugin.as_deref()));
    if of_plugin.is_empty() && decided.plan.env_plugin == EnvPlugin::Used {
        log.note(NO_PLUGIN);
    }
    let filled: Vec<(&str, &str)> = filled.into_iter().chain(pairs(&of_plugin)).collect();
    // A process that enters has not inherited the environment's variables, either.
    let given: Vec<(&str, &str)> = filled.iter().copied().chain(decided.plan.inherited()).collect();
    report_foreign_files(&refused, log);
    if left.is_some() || standing.is_some() || filled.is_empty() {
        let folder = left.as_ref().map(|left| left.folder.display().to_string());
        let refused = reasons(&refused);
        tracing::debug!(folder, refused, "state saved");
    } else if !refused.is_empty() {
        log.note(&nowhere(&refused, decided.by_init));
    }
    if let Some(loss) = left.as_ref().and_then(|left| loss(left, &given, decided.by_init)) {
        log.note(&loss);
    }
    let root = Path::new("/");
    let lines = text(&given, EnvFormat::NcclConf);
    let mut unwritten: Vec<&str> = nccl_conf::files(decided.facts).collect();
    if writes_conf {
        let in_place =
            if config.write_nccl_conf == Some(true) { InPlace::Yes } else { InPlace::UnlessMounted };
        let state = left.as_ref().map(|left| left.folder.join(NCCL_CONF));
        let advised = left.as_ref().filter(|left| left.is_of_root_alone()).and(state.as_deref());
        let write = |file| nccl_conf::write(root, file, &lines, state.as_deref(), in_place).err();
        let mut failed = Vec::new();
        unwritten.retain(|file| match write(file) {
            Some(why) => {
                failed.push((why, (*file).to_owned()));
                true
            }
            None => false,
        });
        for (why, files) in grouped(failed) {
            if !is_read_anyway(decided.facts, state.as_deref()) {
                let files: Vec<&str> = files.iter().map(String::as_str).collect();
                let mut finding = not_written(&files, &visible(&why), advised);
                own_program::amend_not_written(&mut finding, advised);
                report::start::finding(log, &finding, Phase::Start);
            }
        }
    }
    if writes_conf && let Some(why) = keep_apart(config, &decided, root) {
        log.note(&why);
    }
    if let Some(left) = left.as_ref().filter(|left| !left.is_of_container)
        && is_read(decided.facts, &left.folder.join(NCCL_CONF))
    {
        let folder = left.folder.display();
        log.note(&format!(
            "NCCL reads {folder}/{NCCL_CONF} in every process, as NCCL_CONF_FILE or /etc/nccl.conf says. Make sure that no other container can write to {folder}: a process that can write there can make NCCL load a library."
        ));
    }
    for file in unwritten {
        let Some(old) = nccl_conf::left_behind(root, file, &lines) else { continue };
        log.warn(&format!(
            "/{file} has lines of an earlier start, and NCCL reads from them the variables that the environment does not set: {}. Remove the block of rdma-init from the file in the image, or let rdma-init write the file.",
            visible(&old)
        ));
    }
    // sshd uses the home directory in the user database.
    let home = config
        .propagate
        .ssh
        .then(|| home::read(&Reader::new(root), &Environment::default()).database)
        .flatten();
    let target = propagate::PropagationTarget { root, home: home.as_deref().map(Path::new) };
    for problem in propagate::write(target, config.propagate, &given) {
        log.warn(&format!("{problem}."));
    }
    let state = match decided.by_init && config.state_dir != StateDir::Nowhere {
        true => crate::json::line(&HeldState { schema: SCHEMA, run: &run(&of_plugin) }),
        false => Vec::new(),
    };
    let silenced = silenced(&decided, false);
    SavedByStart { state, of_plugin: of_plugin.into_iter().chain(silenced).collect() }
}

/// Returns the variable that keeps NCCL from loading another start's plugin, if this start must use none: the
/// command may inherit the variable that names it, and the conf file may contain it as well.
fn silenced(decided: &Decided, is_in_conf: bool) -> Vec<(String, String)> {
    let is_off = decided.plan.env_plugin == EnvPlugin::Off;
    // Only the user's own value is a setting of the plan.
    let is_of_user = decided.plan.settings.iter().any(|setting| setting.variable == VARIABLE);
    let is_named = || is_in_conf || decided.facts.settings.0.iter().any(names_own_plugin);
    match is_off && !is_of_user && is_named() {
        true => vec![(VARIABLE.to_owned(), "none".to_owned())],
        false => Vec::new(),
    }
}

/// Returns the variables that make NCCL load this shared object and that mark the values that this node
/// filled in; an empty list if NCCL should not load it.
fn of_plugin(plan: &Plan, library: Option<&Path>) -> Vec<(String, String)> {
    match library.and_then(Path::to_str).filter(|_| plan.env_plugin == EnvPlugin::Used) {
        Some(library) => {
            let marker = decision::marker(plan, &decision::node(), library);
            vec![(VARIABLE.to_owned(), library.to_owned()), (MARKER.to_owned(), marker)]
        }
        None => Vec::new(),
    }
}

/// Returns the same variables as the standing start gave its command.
fn of_start(run: &Run) -> Vec<(String, String)> {
    let given = |name: &str| Some((name.to_owned(), run.filled.get(name)?.clone()));
    [VARIABLE, MARKER].into_iter().filter_map(given).collect()
}

/// The message if the report was wrong about the plugin.
const NO_PLUGIN: &str = "NCCL cannot ask rdma-init's env plugin, because its files cannot be written to the state directory. NCCL uses the environment and its conf file instead.";

fn pairs(variables: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// Writes the names of this node's variables into vLLM's list, so that Ray's workers on other nodes keep
/// their own values. Returns the message if that fails.
fn keep_apart(config: &Config, decided: &Decided, root: &Path) -> Option<String> {
    let list = decided.facts.node_list.as_ref().filter(|list| list.holds != Holds::NoList)?;
    // Variables from the configuration are the user's, and vLLM may copy them.
    let is_ours = |setting: &&Setting| {
        setting.outcome == SettingOutcome::Filled && setting.source != Source::Configuration
    };
    let filled = decided.plan.settings.iter().filter(is_ours);
    // If the values must not be copied, the variables that describe them must not be copied, either.
    let of_plugin = match decided.plan.env_plugin {
        EnvPlugin::Used => &[VARIABLE, MARKER][..],
        EnvPlugin::Off | EnvPlugin::NotUsed(_) => &[],
    };
    let names = filled.map(|setting| setting.variable.as_str()).chain(of_plugin.iter().copied());
    let names: Vec<&str> = names.collect();
    let in_place = if config.write_nccl_conf == Some(true) { InPlace::Yes } else { InPlace::UnlessMounted };
    let why = node_list::write(root, &list.path, &names, in_place).err()?;
    Some(not_kept_apart(&list.path, &why, &names))
}

/// Returns the message that the list cannot be written. The list's path comes from the environment.
fn not_kept_apart(list: &str, why: &str, names: &[&str]) -> String {
    format!(
        "vLLM's list of the variables that stay each node's own ({}) cannot be written: {}. vLLM on Ray then gives the workers on other nodes {} of this one. Put these names into the list, in the image or on the mount.",
        visible(list),
        visible(why),
        names.join(", ")
    )
}

/// The part of `plan.json` that rdma-init's own init keeps.
#[derive(Serialize)]
struct HeldState<'a> {
    schema: &'static str,
    run: &'a Run,
}

/// Reports files that have the names of rdma-init's files but that this start did not write. In the first of
/// the known directories they are an error: an image may be configured to read them there. If containers
/// share a directory on purpose, they see each other's state there, so this is a warning.
fn report_foreign_files(refused: &[RefusedFolder], log: &Log) {
    let known = refused.first().filter(|refused| !refused.strange.is_empty());
    if let Some(RefusedFolder { folder, why, strange, origin }) = known {
        let folder = folder.display();
        let strange = strange.join(", ");
        let of_others = format!(
            "{folder} holds files that this start did not write, and another user or container may have written them ({strange}). rdma-init does not use {folder}: {why}. Do not let a shell read it, and point neither NCCL_CONF_FILE nor /etc/nccl.conf to it; rdma-init exec and eval \"$(rdma-init env)\" do not read it."
        );
        match origin {
            FilesOrigin::OtherState => log.warn(&of_others),
            FilesOrigin::Others => say(&format!("error: {of_others}")),
            FilesOrigin::NotReplaced => log.warn(&format!(
                "{folder} holds files that this start could neither replace nor remove ({strange}): {why}. A shell or an NCCL that reads them gets the values of an earlier start. Remove the files, or let rdma-init write to {folder}."
            )),
        }
    }
}

/// Returns why each directory cannot be written.
fn reasons(refused: &[RefusedFolder]) -> String {
    let reasons = refused.iter().map(|one| format!("{}: {}", one.folder.display(), one.why));
    reasons.collect::<Vec<_>>().join("; ")
}

fn nowhere(refused: &[RefusedFolder], by_init: bool) -> String {
    let reasons = reasons(refused);
    match by_init {
        true => format!(
            "the decision cannot be written to any directory, and only PID 1 holds it: processes of its own user that enter the container later get the variables, and others decide anew. The reason: {reasons}."
        ),
        false => format!(
            "the decision cannot be written to any directory, so processes that enter the container later decide anew. The reason: {reasons}."
        ),
    }
}

/// Returns the message about the variables that entering processes will not get, because nothing proves to
/// them whose state it is.
fn loss(left: &WrittenFiles, given: &[(&str, &str)], by_init: bool) -> Option<String> {
    let lost: Vec<&str> =
        given.iter().filter(|(name, value)| !is_harmless(name, value)).map(|(name, _)| *name).collect();
    if left.is_of_container || lost.is_empty() {
        return None;
    }
    let own = user::effective();
    let who = match by_init {
        true => format!("processes of any user but uid {own}"),
        false => "processes".to_owned(),
    };
    Some(format!(
        "{who} that enter the container later will not get {}. Other containers may be able to write to {}, so only variables that name no file, library or code are taken from there. {OWN_PLACE}.",
        lost.join(", "),
        left.folder.display()
    ))
}

/// Returns whether an earlier start's state must stay: that of the container's own start, or that of another
/// command that is still running.
fn stands(run: &Run) -> bool {
    run.by_init || run.pid != nix::unistd::getpid().as_raw() && run.is_running()
}

/// Returns whether the image already points NCCL to this file, as the advice would suggest.
fn is_read_anyway(facts: &Facts, state: Option<&Path>) -> bool {
    let named = facts.settings.get("NCCL_CONF_FILE").map(|setting| Path::new(&setting.value));
    named.is_some() && named == state
}

/// Returns whether NCCL is configured, by a variable or a link, to read this file.
fn is_read(facts: &Facts, file: &Path) -> bool {
    let is_linked = || std::fs::read_link("/etc/nccl.conf").is_ok_and(|target| target == file);
    is_read_anyway(facts, Some(file)) || is_linked()
}

fn run(decided: &Decided, pid_started: Option<u64>, of_plugin: &[(String, String)]) -> Run {
    // If there are private values, the plan's findings contain them, too.
    let is_private = decided.facts.has_private_values();
    let mut run = Run {
        identity: Identity::own().clone(),
        by_init: decided.by_init,
        unwatched: decided.unwatched,
        since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        pid: nix::unistd::getpid().as_raw(),
        pid_started,
        headline: if is_private { public_headline(decided.plan) } else { headline(decided.plan) },
        self_test: decided.verdict.map(|passed| if passed { "passed" } else { "failed" }.to_owned()),
        ..Run::of(decided.plan)
    };
    for (name, value) in of_plugin {
        let reason = Reason { source: Source::Facts, rule: OF_PLUGIN.to_owned() };
        run.reasons.insert(name.clone(), reason);
        run.filled.insert(name.clone(), value.clone());
    }
    run
}

const OF_PLUGIN: &str = "NCCL asks rdma-init's env plugin in every process";

fn files(
    run: &Run,
    decided: &Decided,
    filled: &[(&str, &str)],
    of_plugin: &[(String, String)],
) -> state::StateFiles {
    let is_private = decided.facts.has_private_values();
    let plan = Document::new(decided.plan, decided.memlock).of_run(run);
    let filled: Vec<(&str, &str)> = filled.iter().copied().chain(pairs(of_plugin)).collect();
    let decision = || decision::text(decided.plan, decided.facts, &decision::node()).into_bytes();
    state::StateFiles {
        env_sh: text(&filled, EnvFormat::Sh).into_bytes(),
        // The lines are in a marked block, because the next start may have to read this file.
        nccl_conf: block::with("", &text(&filled, EnvFormat::NcclConf), |_| Vec::new(), may_write)
            .into_bytes(),
        plan: json(&if is_private { plan.without_plan() } else { plan }),
        facts: json(&document::Document::new(decided.facts)),
        is_private,
        env_plugin: (!of_plugin.is_empty()).then(decision),
    }
}

/// Returns the variables as text. Leaves out those that the format cannot represent, as `rdma-init env` does.
fn text(filled: &[(&str, &str)], format: EnvFormat) -> String {
    let mut text = Vec::new();
    let _ = environment::write(&mut text, filled, format);
    String::from_utf8_lossy(&text).into_owned()
}

fn json(document: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    // A write to memory cannot fail.
    let _ = crate::json::write(&mut text, document);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_environment_makes_no_line_of_its_own() {
        let said = not_kept_apart("/a\nerror: \u{1b}[31m", "/a\nb: no", &["NCCL_IB_HCA"]);
        assert!(!said.contains(['\n', '\u{1b}']), "{said}");
    }
}
