//! The platform's script that sets NCCL's variables, and what shows that it has run.

use crate::finding::{Finding, Id};
use crate::libraries::nccl::network;
use crate::plan::Context;
use crate::profiles::Script;

pub(super) fn finding(context: &Context) -> Option<Finding> {
    let Context { facts, profile, .. } = context;
    let library = context.library();
    let script = profile.script.as_ref().filter(|_| !context.command_runs_script())?;
    if !context.awaits_script() {
        return in_part(context, script);
    }
    if script.paths.is_empty() {
        return Some(without_manifest(context, script));
    }
    let start = format!(
        "A script of the platform sets {library}'s variables on this machine (profile {}), and {} is not set:",
        profile.name, script.sets
    );
    let there = script.paths.iter().find(|path| facts.platform.has_file(path));
    let (message, fix) = match there {
        Some(path) => (
            format!(
                "{start} without the script's values, {library} does not use the platform's plugin as it is meant to."
            ),
            Some(source(path)),
        ),
        None => (
            format!("{start} the script is not in this container ({}).", script.paths.join(", ")),
            profile.hint.clone(),
        ),
    };
    let finding = Finding::warning(Id::ScriptNotSourced, message).about_variables([&script.sets]);
    Some(match fix {
        Some(fix) => finding.with_fix(fix),
        None => finding,
    })
}

/// Reports that the values of the platform's manifest are missing.
fn without_manifest(context: &Context, script: &Script) -> Finding {
    let (library, profile) = (context.library(), &context.profile);
    let message = format!(
        "The platform's manifest for a job sets {library}'s variables (profile {}), and {} is not set: without the manifest's values, {library} does not use the platform's plugin as it is meant to.",
        profile.name, script.sets
    );
    let finding = Finding::warning(Id::ScriptNotSourced, message).about_variables([&script.sets]);
    match &profile.hint {
        Some(hint) => finding.with_fix(hint.clone()),
        None => finding,
    }
}

fn source(path: &str) -> String {
    format!(
        "Source {path} before the command: rdma-init -- bash -c '. {path} && exec ...'. If the command's own script does that already, ignore this."
    )
}

/// Reports that only a part of the script's variables is set. A later release of the script may set fewer, so a few
/// missing ones are a note.
fn in_part(context: &Context, script: &Script) -> Option<Finding> {
    let Context { facts, profile, user, .. } = context;
    let known = user.get(&script.sets)?;
    // A conf file of the platform is whole, and the command's script may still run.
    let is_of_script = |path: &str| script.paths.iter().any(|of_script| of_script == path);
    let is_whole = known.origin.conf_file().is_some_and(is_of_script);
    let will_run = facts.platform.files_in_command.iter().any(|path| is_of_script(path));
    let asks_for_other =
        user.get(network::VARIABLE).is_some_and(|wanted| network::is_built_in(&wanted.value));
    if is_whole || will_run || asks_for_other {
        return None;
    }
    let missing: Vec<&str> =
        script.also.iter().map(String::as_str).filter(|variable| user.get(variable).is_none()).collect();
    let (last, others) = missing.split_last()?;
    let names = match others {
        [] => (*last).to_owned(),
        others => format!("{} and {last}", others.join(", ")),
    };
    let is_manifest = script.paths.is_empty();
    let (who, whose) = match is_manifest {
        true => ("The platform's manifest for a job", "manifest"),
        false => ("A script of the platform", "script"),
    };
    let start = format!(
        "{who} sets {}'s variables on this machine (profile {}). {} is set, but not {names}:",
        context.library(),
        profile.name,
        script.sets
    );
    let finding = match missing.len() * 2 > script.also.len() {
        true if is_manifest => Finding::warning(
            Id::ScriptNotSourced,
            format!("{start} only a part of the manifest's values is here."),
        ),
        true => Finding::warning(
            Id::ScriptNotSourced,
            format!("{start} the script was not sourced, or only a part of its values is here."),
        ),
        false => Finding::info(
            Id::ScriptNotSourced,
            format!(
                "{start} only a part of the {whose}'s values is here, or its release sets fewer variables."
            ),
        ),
    };
    let finding = finding.about_variables(missing.into_iter().chain([script.sets.as_str()]));
    let there = script.paths.iter().find(|path| facts.platform.has_file(path));
    Some(match there.map(|path| source(path)).or_else(|| profile.hint.clone()) {
        Some(fix) => finding.with_fix(fix),
        None => finding,
    })
}
