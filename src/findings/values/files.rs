//! Variables that name a file that NCCL cannot read.

use super::{Subject, conf_file, shown};
use crate::facts::named_files::VARIABLES;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};

pub(super) fn findings(subject: &Subject) -> Vec<Finding> {
    let set = VARIABLES.iter().filter_map(|variable| subject.user.get(variable));
    set.filter(|setting| !setting.value.is_empty() && !conf_file::is_cause(setting))
        .filter_map(|setting| missing(subject, setting))
        .collect()
}

fn missing(subject: &Subject, setting: &UserSetting) -> Option<Finding> {
    let file = subject.facts.named_files.iter().find(|file| file.path == setting.value)?;
    let error = file.error.as_ref()?;
    if file.is_directory() {
        return Some(directory(subject, setting));
    }
    let what = format!("{}: the file cannot be opened: {error}.", shown(setting));
    let remedy = match file.is_missing() {
        true => "Mount the file into the container, write its whole path (~ is not expanded)",
        false => "Let the job's user read the file",
    };
    let fix = format!("{remedy}, or remove {}.", setting.variable);
    let finding = match setting.variable.as_str() {
        // `ncclTopoGetXmlGraphFromFile` returns ncclSystemError.
        "NCCL_GRAPH_FILE" => Finding::error(Id::MissingFile, format!("{what} {} will fail.", subject.nccl())),
        "NCCL_TOPO_FILE" => Finding::warning(
            Id::MissingFile,
            format!("{what} {} will continue with the topology that it detects.", subject.nccl()),
        ),
        _ => Finding::warning(
            Id::MissingFile,
            format!("{what} The tuner plugin that reads it will not find it."),
        ),
    };
    Some(finding.about_variables([&setting.variable]).with_fix(fix))
}

/// `docker run -v` makes a directory if the file to mount is missing. NCCL opens it, reads nothing, and takes it for a
/// file without any content (`src/graph/xml.cc`, `xmlGetNode`).
fn directory(subject: &Subject, setting: &UserSetting) -> Finding {
    let follows = match setting.variable.as_str() {
        "NCCL_TUNER_CONFIG_PATH" => "The tuner plugin that reads it will find nothing in it.".to_owned(),
        _ => format!("{} will find nothing in it.", subject.nccl()),
    };
    let message = format!("{} is a directory, and must be a file. {follows}", shown(setting));
    let fix = format!(
        "Check that the file exists at the source of the mount (Docker's -v makes a directory of a missing source), or remove {}.",
        setting.variable
    );
    Finding::warning(Id::MissingFile, message).about_variables([&setting.variable]).with_fix(fix)
}
