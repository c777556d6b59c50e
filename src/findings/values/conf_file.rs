//! Lines in nccl.conf that do not have the effect that they seem to have.

use super::{Decided, shown};
use crate::facts::environment::is_variable_name;
use crate::facts::settings::{ConfLine, UserSetting};
use crate::finding::{Finding, Id, Source};
use crate::libraries::nccl::version::{REWROTE_PARSERS, Version};

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let lines = decided
        .facts
        .conf_lines
        .iter()
        .filter(|line| line.origin.conf_file().is_some_and(|file| decided.user.reads(file)))
        .map(|line| check_line(decided, line));
    let values = decided.user.effective().filter_map(|setting| check_value(decided, setting));
    let below = decided.user.effective().filter(|setting| setting.below_block);
    let below = below.map(|setting| below_block(decided, setting));
    missing(decided)
        .into_iter()
        .chain(lines)
        .chain(values)
        .chain(below)
        .chain(check_line_ends(decided))
        .collect()
}

/// Reports a line that a person has added below rdma-init's block, in a running container.
fn below_block(decided: &Decided, setting: &UserSetting) -> Finding {
    let variable = setting.variable.as_str();
    let message = format!(
        "{} stands below rdma-init's block, which has {variable}, too: {} takes the first line, so it gets the value in the block until rdma-init starts in this container again.",
        shown(setting),
        decided.library()
    );
    Finding::warning(Id::ConfLine, message)
        .about_variables([variable])
        .with_fix("Move the line above the block.")
}

/// Reports that `NCCL_CONF_FILE` names an unreadable file. In this case, NCCL does not read `~/.nccl.conf`
/// either.
fn missing(decided: &Decided) -> Option<Finding> {
    let setting = decided.user.get("NCCL_CONF_FILE").filter(|setting| !setting.value.is_empty())?;
    let (facts, library) = (decided.facts, decided.library());
    // An older facts document does not list the existing files.
    let is_known = facts.homes.is_some() && setting.origin == Source::Environment;
    if !is_known || !decided.user.reads(&setting.value) || facts.conf_files.contains(&setting.value) {
        return None;
    }
    let message = format!(
        "{}: {library} cannot read this file, and while the variable is set it does not read the one in the home directory either.",
        shown(setting)
    );
    Some(Finding::warning(Id::ConfFile, message).about_variables(["NCCL_CONF_FILE"]).with_fix(format!(
        "Write the whole path of a file; {library} expands neither ~ nor variables in it."
    )))
}

/// Reports a line that names a variable but does not set it.
fn check_line(decided: &Decided, line: &ConfLine) -> Finding {
    let library = decided.library();
    let key = line.text.split('=').next().unwrap_or_default();
    let why = if !line.text.contains('=') {
        "the line has no =, so it sets nothing".to_owned()
    } else if key.trim_start().starts_with("export") {
        format!(
            "{library} takes export as part of the name, so the line sets a variable that no program reads"
        )
    } else if key != key.trim() {
        format!(
            "{library} takes the spaces as part of the name, so the line sets a variable that no program reads"
        )
    } else {
        format!("{library} reads no variable with the name before the =")
    };
    let is_meant = |word: &&str| word.starts_with("NCCL_") && is_variable_name(word);
    Finding::warning(Id::ConfLine, format!("{}: {:?}: {why}.", line.origin, line.text))
        .about_variables(key.split_whitespace().find(is_meant))
        .with_fix("Write NAME=VALUE, with no space, quote or comment.")
}

/// Reports quotes, spaces, or a comment that NCCL treats as part of the value.
fn check_value(decided: &Decided, setting: &UserSetting) -> Option<Finding> {
    let rest = rest(setting)?;
    let UserSetting { variable, value, origin, .. } = setting;
    let message = format!(
        "{origin}: {variable}={value:?}: {} takes the {rest} as part of the value.",
        decided.library()
    );
    Some(
        Finding::warning(Id::ConfLine, message)
            .about_variables([variable])
            .with_fix("Write NAME=VALUE, with no space, quote or comment."),
    )
}

/// Returns the part of the value that does not belong to it.
fn rest(setting: &UserSetting) -> Option<&'static str> {
    let value = setting.value.as_str();
    if !is_of_file(setting) || has_return(setting) {
        None
    } else if value.contains(" #") || value.contains("\t#") {
        Some("comment")
    } else if value.len() > 1 && ["\"", "'"].iter().any(|q| value.starts_with(q) && value.ends_with(q)) {
        Some("quotes")
    } else if value != value.trim() {
        Some("spaces")
    } else {
        None
    }
}

/// Reports files whose lines end with a carriage return.
fn check_line_ends(decided: &Decided) -> Vec<Finding> {
    let mut files: Vec<(&str, Vec<&str>)> = Vec::new();
    for setting in decided.user.effective().filter(|setting| has_return(setting)) {
        let Some(path) = setting.origin.conf_file() else { continue };
        match files.iter_mut().find(|(file, _)| *file == path) {
            Some((_, names)) => names.push(&setting.variable),
            None => files.push((path, vec![&setting.variable])),
        }
    }
    let who = match decided.user.version() {
        Some(_) => decided.nccl(),
        None => {
            let Version { major, minor, .. } = REWROTE_PARSERS;
            format!("{} before {major}.{minor}", decided.library())
        }
    };
    let finding = |(file, names): &(&str, Vec<&str>)| {
        let message = format!(
            "{file}: this file has Windows line endings, and {who} keeps the carriage return in the value of {}.",
            names.join(", ")
        );
        Finding::warning(Id::ConfLine, message)
            .about_variables(names.iter().copied())
            .with_fix(format!("Convert the file to Unix line endings: sed -i 's/\\r$//' {file}"))
    };
    files.iter().map(finding).collect()
}

fn is_of_file(setting: &UserSetting) -> bool {
    setting.origin.conf_file().is_some() && setting.variable.starts_with("NCCL_")
}

fn has_return(setting: &UserSetting) -> bool {
    is_of_file(setting) && setting.value.ends_with('\r')
}

/// Returns whether a finding about the line explains the odd value, so that no other finding needs to report
/// it.
pub(super) fn is_cause(setting: &UserSetting) -> bool {
    has_return(setting) || rest(setting).is_some()
}
