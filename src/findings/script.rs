//! The platform's script that sets NCCL's variables, and what shows that it has run.

use crate::finding::{Finding, Id};
use crate::plan::Context;

pub(super) fn finding(context: &Context) -> Option<Finding> {
    let Context { facts, profile, .. } = context;
    let library = context.library();
    let is_missing = context.awaits_script() && !context.command_runs_script();
    let script = profile.script.as_ref().filter(|_| is_missing)?;
    let start = format!(
        "A script of the platform sets {library}'s variables on this machine (profile {}), and {} is not set:",
        profile.name, script.sets
    );
    let there = script.paths.iter().find(|path| facts.platform.files.contains(path));
    let (message, fix) = match there {
        Some(path) => (
            format!(
                "{start} without the script's values, {library} does not use the platform's plugin as it is meant to."
            ),
            Some(format!(
                "Source {path} before the command: rdma-init -- bash -c '. {path} && exec ...'. If the command's own script does that already, ignore this."
            )),
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
