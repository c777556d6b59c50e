//! Lines of nccl.conf that do not do what they seem to.

use super::Subject;
use crate::facts::settings::{ConfLine, UserSetting};
use crate::nccl::version::REWROTE_PARSERS;
use crate::plan::Finding;

pub fn findings(subject: &Subject) -> Vec<Finding> {
    let lines = subject.facts.conf_lines.iter().filter(|line| subject.user.reads(line.file())).map(of_line);
    let values = subject.user.effective().filter_map(|setting| of_value(subject, setting));
    lines.chain(values).collect()
}

/// A line that names a variable and does not set it.
fn of_line(line: &ConfLine) -> Finding {
    let key = line.text.split('=').next().unwrap_or_default();
    let why = if !line.text.contains('=') {
        "it has no =, so it sets nothing"
    } else if key.trim_start().starts_with("export") {
        "export belongs to the name for NCCL, so it sets a variable that nobody reads"
    } else if key != key.trim() {
        "the spaces belong to the name for NCCL, so it sets a variable that nobody reads"
    } else {
        "what is before the = is no name that NCCL reads"
    };
    Finding::warning("conf-line", format!("{}: {:?}: {why}.", line.origin, line.text))
        .with_fix("Write NAME=VALUE, with nothing before, between or after.")
}

/// What is left in a value that was meant to be none of it.
fn of_value(subject: &Subject, setting: &UserSetting) -> Option<Finding> {
    let value = setting.value.as_str();
    if setting.file().is_empty() || !setting.variable.starts_with("NCCL_") {
        return None;
    }
    let why = if value.ends_with('\r') {
        let who = match subject.user.version() {
            Some(version) => format!("NCCL {version}"),
            None => format!("NCCL before {}.{}", REWROTE_PARSERS.major, REWROTE_PARSERS.minor),
        };
        format!("the line ends as on Windows, and {who} keeps the carriage return in the value")
    } else if value.contains(" #") || value.contains("\t#") {
        "a comment behind a value is part of the value for NCCL".to_owned()
    } else if value.len() > 1 && ["\"", "'"].iter().any(|q| value.starts_with(q) && value.ends_with(q)) {
        "the quotes are part of the value for NCCL".to_owned()
    } else if value != value.trim() {
        "the spaces are part of the value for NCCL".to_owned()
    } else {
        return None;
    };
    Some(
        Finding::warning("conf-line", format!("{}: {}={value:?}: {why}.", setting.origin, setting.variable))
            .with_fix("Write NAME=VALUE, with nothing before, between or after."),
    )
}
