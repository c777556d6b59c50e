//! Leaves what was decided to processes that enter the container later.

use std::cell::LazyCell;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::unistd::Uid;
use serde::Serialize;

use crate::apply::amend::InPlace;
use crate::apply::state::{Left, Refused};
use crate::apply::{nccl_conf, node_list, propagate, state};
use crate::block;
use crate::config::Config;
use crate::facts::environment::Environment;
use crate::facts::identity::{Identity, started};
use crate::facts::node_list::Holds;
use crate::facts::{Facts, Reader, document, home};
use crate::finding::Source;
use crate::log::{Log, say};
use crate::plan::{Outcome, Plan, SCHEMA, Setting};
use crate::report::environment;
use crate::report::environment::EnvFormat;
use crate::report::plan::{Document, Memlock, headline, public_headline};
use crate::state::find::{Found, OWN_PLACE, find};
use crate::state::harmless::is_harmless;
use crate::state::run::Run;
use crate::state::{NCCL_CONF, StateDir};
use crate::text::visible;

/// What is left.
pub struct Decided<'a> {
    pub facts: Facts,
    pub plan: &'a Plan,
    pub memlock: Option<&'a Memlock>,
    /// Whether the self-test passed, if there was one.
    pub verdict: Option<bool>,
    /// Whether PID 1 is our own init.
    pub by_init: bool,
}

/// Writes the state folder, in a container `/etc/nccl.conf` and its like, and every other place where the
/// variables are wanted (`propagate`). Says what cannot be written, if somebody could miss it;
/// the command starts all the same. Gives the bytes for which our own init is to vouch.
#[must_use]
pub fn leave(config: &Config, decided: Decided, log: &Log) -> Vec<u8> {
    let filled: Vec<(&str, &str)> = decided.plan.public().collect();
    let run = LazyCell::new(|| run(&decided));
    let writes_conf =
        config.write_nccl_conf.unwrap_or_else(|| decided.by_init || Identity::own().is_container());
    // A command that somebody starts by hand in a container ends before the container does.
    let standing = match decided.by_init {
        true => None,
        false => find(&config.state_dir).ok().filter(|found| stands(&found.run)),
    };
    let standing = match standing {
        Some(Found { doubt: None, .. }) => return Vec::new(),
        // The state may be somebody else's, who must not keep us from writing where nobody else
        // can.
        doubtful => doubtful.and_then(|found| found.folder),
    };
    let (left, refused) =
        state::write(&config.state_dir, standing.as_deref(), || files(&run, &decided, &filled));
    // A process that enters has not inherited the variables of the environment, either.
    let given: Vec<(&str, &str)> = filled.iter().copied().chain(decided.plan.inherited()).collect();
    tell_of_strangers(&refused, log);
    if left.is_some() || standing.is_some() || filled.is_empty() {
        tracing::debug!(?left, ?refused, "state");
    } else if !refused.is_empty() {
        log.note(&nowhere(&refused, decided.by_init));
    }
    if let Some(loss) = left.as_ref().and_then(|left| loss(left, &given, decided.by_init)) {
        log.note(&loss);
    }
    let root = Path::new("/");
    let lines = text(&given, EnvFormat::NcclConf);
    if writes_conf {
        let in_place =
            if config.write_nccl_conf == Some(true) { InPlace::Yes } else { InPlace::UnlessMounted };
        let state = left.as_ref().map(|left| left.folder.join(NCCL_CONF));
        let advised = left.as_ref().filter(|left| left.is_of_container).and(state.as_deref());
        for file in nccl_conf::files(&decided.facts) {
            if let Err(why) = nccl_conf::write(root, file, &lines, state.as_deref(), in_place)
                && !is_read_anyway(&decided.facts, state.as_deref())
            {
                log.note(&advice(file, &why, advised));
            }
        }
    }
    if writes_conf && let Some(why) = keep_apart(config, &decided, root) {
        log.note(&why);
    }
    if let Some(left) = left.as_ref().filter(|left| !left.is_of_container)
        && is_read(&decided.facts, &left.folder.join(NCCL_CONF))
    {
        let folder = left.folder.display();
        log.note(&format!(
            "NCCL reads {folder}/{NCCL_CONF} in every process, as NCCL_CONF_FILE or /etc/nccl.conf says. Make sure that no other container can write to {folder}: whoever can write there can make NCCL load a library."
        ));
    }
    for file in nccl_conf::files(&decided.facts) {
        let Some(old) = nccl_conf::left_behind(root, file, &lines) else { continue };
        log.warn(&format!(
            "/{file} has lines of an earlier start, and NCCL takes from them what the environment does not set: {}. Remove the block of rdma-init from the file in the image, or let rdma-init write the file.",
            visible(&old)
        ));
    }
    // sshd takes the home folder from the user database.
    let home = config
        .propagate
        .ssh
        .then(|| home::read(&Reader::new(root), &Environment::default()).database)
        .flatten();
    let target = propagate::Target { root, home: home.as_deref().map(Path::new) };
    for problem in propagate::write(target, config.propagate, &given) {
        log.warn(&format!("{problem}."));
    }
    match decided.by_init && config.state_dir != StateDir::Nowhere {
        true => crate::json::line(&Kept { schema: SCHEMA, run: &run }),
        false => Vec::new(),
    }
}

/// Writes into vLLM's list what this node was given, so that Ray's workers on other nodes keep
/// their own values. Gives what to say if that fails.
fn keep_apart(config: &Config, decided: &Decided, root: &Path) -> Option<String> {
    let list = decided.facts.node_list.as_ref().filter(|list| list.holds != Holds::NoList)?;
    // What the configuration sets is the user's, and vLLM may copy it.
    let is_ours =
        |setting: &&Setting| setting.outcome == Outcome::Filled && setting.source != Source::Configuration;
    let filled = decided.plan.settings.iter().filter(is_ours);
    let names: Vec<&str> = filled.map(|setting| setting.variable.as_str()).collect();
    let in_place = if config.write_nccl_conf == Some(true) { InPlace::Yes } else { InPlace::UnlessMounted };
    let why = node_list::write(root, &list.path, &names, in_place).err()?;
    Some(not_kept_apart(&list.path, &why, &names))
}

/// The path comes from the environment.
fn not_kept_apart(list: &str, why: &str, names: &[&str]) -> String {
    format!(
        "vLLM's list of the variables that stay each node's own ({}) cannot be written: {}. vLLM on Ray then gives the workers on other nodes {} of this one. Put these names into the list, in the image or on the mount.",
        visible(list),
        visible(why),
        names.join(", ")
    )
}

/// What our own init holds of `plan.json`.
#[derive(Serialize)]
struct Kept<'a> {
    schema: &'static str,
    run: &'a Run,
}

/// Tells of files that have the names of ours and are not ours. In the first of the known
/// folders they are an error: an image may have been told to read them there. If containers
/// share a folder on purpose, they see each other's state there, which is worth a warning.
fn tell_of_strangers(refused: &[Refused], log: &Log) {
    let known = refused.first().filter(|refused| !refused.strange.is_empty());
    if let Some(Refused { folder, why, strange, is_other_state }) = known {
        let folder = folder.display();
        let message = format!(
            "{folder} holds files that this start has not written, and somebody else may have ({}). rdma-init does not use {folder}: {why}. Let no shell read it, and let neither NCCL_CONF_FILE nor /etc/nccl.conf lead there; rdma-init exec and eval \"$(rdma-init env)\" do not read it.",
            strange.join(", ")
        );
        match is_other_state {
            true => log.warn(&message),
            false => say(&format!("error: {message}")),
        }
    }
}

fn nowhere(refused: &[Refused], by_init: bool) -> String {
    let reasons: Vec<String> =
        refused.iter().map(|one| format!("{}: {}", one.folder.display(), one.why)).collect();
    let reasons = reasons.join("; ");
    match by_init {
        true => format!(
            "the decision cannot be written to any folder, and only PID 1 holds it: processes of its own user that enter the container later get the variables, and others decide anew. The reason: {reasons}."
        ),
        false => format!(
            "the decision cannot be written to any folder, so processes that enter the container later decide anew. The reason: {reasons}."
        ),
    }
}

/// Which variables processes that enter will not get, because nothing proves to them whose
/// state it is.
fn loss(left: &Left, given: &[(&str, &str)], by_init: bool) -> Option<String> {
    let lost: Vec<&str> =
        given.iter().filter(|(name, value)| !is_harmless(name, value)).map(|(name, _)| *name).collect();
    if left.is_of_container || lost.is_empty() {
        return None;
    }
    let own = Uid::effective();
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

/// Whether the state of an earlier start has to stay: that of the container's own start, or
/// that of another command that still runs.
fn stands(run: &Run) -> bool {
    run.by_init || run.pid != nix::unistd::getpid().as_raw() && run.is_running()
}

/// Whether the image already names this file to NCCL, as the advice would say.
fn is_read_anyway(facts: &Facts, state: Option<&Path>) -> bool {
    let named = facts.settings.get("NCCL_CONF_FILE").map(|setting| Path::new(&setting.value));
    named.is_some() && named == state
}

/// Whether NCCL is told to read this file, by a variable or a link.
fn is_read(facts: &Facts, file: &Path) -> bool {
    let is_linked = || std::fs::read_link("/etc/nccl.conf").is_ok_and(|target| target == file);
    is_read_anyway(facts, Some(file)) || is_linked()
}

/// `state` is a file that only this container can write to.
fn advice(file: &str, why: &str, state: Option<&Path>) -> String {
    let next_best = match state {
        Some(state) => {
            let state = state.display();
            format!(
                "To reach them, put ENV NCCL_CONF_FILE={state} (NCCL 2.23 and later) or ln -s {state} /{file} into the image, or start them with rdma-init exec."
            )
        }
        None => "Start them with rdma-init exec.".to_owned(),
    };
    format!(
        "the variables cannot be put into /{file} for processes that enter the container later: {why}. {next_best}"
    )
}

fn run(decided: &Decided) -> Run {
    let pid = nix::unistd::getpid().as_raw();
    // The values are then in the plan's findings, too.
    let is_private = decided.facts.has_private_values();
    Run {
        identity: Identity::own().clone(),
        by_init: decided.by_init,
        since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        pid,
        pid_started: started(pid),
        headline: if is_private { public_headline(decided.plan) } else { headline(decided.plan) },
        self_test: decided.verdict.map(|passed| if passed { "passed" } else { "failed" }.to_owned()),
        ..Run::of(decided.plan)
    }
}

fn files(run: &Run, decided: &Decided, filled: &[(&str, &str)]) -> state::Files {
    let is_private = decided.facts.has_private_values();
    let plan = Document::new(decided.plan, decided.memlock).of_run(run);
    state::Files {
        env_sh: text(filled, EnvFormat::Sh).into_bytes(),
        // The lines are in a marked block, because the next start may be told to read this
        // file.
        nccl_conf: block::with("", &text(filled, EnvFormat::NcclConf), |_| Vec::new()).into_bytes(),
        plan: json(&if is_private { plan.without_plan() } else { plan }),
        facts: json(&document::Document::new(&decided.facts)),
        is_private,
    }
}

/// Variables that the format cannot hold are left out, as for `rdma-init env`.
fn text(filled: &[(&str, &str)], format: EnvFormat) -> String {
    let mut text = Vec::new();
    let _ = environment::write(&mut text, filled, format);
    String::from_utf8_lossy(&text).into_owned()
}

fn json(document: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    // A write into memory cannot fail.
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
