//! Whether the files exist that variables name for NCCL to read. rdma-init does not read their content.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::reader::{Reader, describe};
use super::settings::Settings;
use super::start::Start;

/// The variables with files that `ncclTopoGetSystem` and `ncclTopoCompute` open (`src/graph/topo.cc`,
/// `search.cc`), and with the file that Google's tuner plugin reads.
pub(crate) const VARIABLES: [&str; 3] = ["NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TUNER_CONFIG_PATH"];

/// The most files to examine; a conf file may name any number.
const MOST: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFile {
    /// The path as written in the variable.
    pub path: String,
    /// Why the file cannot be read, with the errno's name; `None` if it can.
    pub error: Option<String>,
}

impl NamedFile {
    /// Returns whether the file does not exist. Documents contain the error in the form of [`describe`].
    pub fn is_missing(&self) -> bool {
        self.error.as_deref() == Some(describe(Errno::ENOENT).as_str())
    }

    pub fn is_directory(&self) -> bool {
        self.error.as_deref() == Some(describe(Errno::EISDIR).as_str())
    }
}

/// Returns all files that a variable names anywhere; the plan decides which of them count.
pub(crate) fn read(reader: &Reader, start: Start, settings: &Settings) -> Vec<NamedFile> {
    let named = settings.0.iter().filter(|setting| VARIABLES.contains(&setting.variable.as_str()));
    let mut files: Vec<NamedFile> = Vec::new();
    for setting in named.filter(|setting| !setting.value.is_empty()) {
        let is_known = files.iter().any(|file| file.path == setting.value);
        if files.len() == MOST || is_known {
            continue;
        }
        if let Some(path) = start.path(&setting.value) {
            let is_readable = reader.may_read(&path);
            let is_file = is_readable.and_then(|()| match reader.is_directory(&path) {
                true => Err(Errno::EISDIR),
                false => Ok(()),
            });
            let error = is_file.err().map(describe);
            files.push(NamedFile { path: setting.value.clone(), error });
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::environment::Environment;
    use crate::facts::settings::UserSetting;
    use std::fs;
    use std::path::Path;

    #[test]
    fn files_are_found_from_the_working_folder_and_nothing_is_opened() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("job")).unwrap();
        // Opening a FIFO would block until a writer opens it.
        nix::unistd::mkfifo(&root.path().join("job/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let set = |variable: &str, value: &str| {
            UserSetting::new(variable, value, crate::finding::Source::Environment)
        };
        let settings = Settings(vec![
            set("NCCL_TOPO_FILE", "/topo.xml"),
            set("NCCL_TOPO_FILE", "fifo"),
            set("NCCL_TOPO_FILE", "/job"),
            set("NCCL_GRAPH_FILE", ""),
            set("NCCL_GRAPH_FILE", "/topo.xml"),
            set("NCCL_DEBUG_FILE", "/debug"),
        ]);
        let environment = Environment::default();
        let start = Start { folder: Some(Path::new("/job")), ..Start::from(&environment) };
        let files = read(&Reader::new(root.path()), start, &settings);
        let missing = Some("ENOENT (No such file or directory)".to_owned());
        assert_eq!(
            files,
            [
                NamedFile { path: "/topo.xml".to_owned(), error: missing },
                NamedFile { path: "fifo".to_owned(), error: None },
                NamedFile { path: "/job".to_owned(), error: Some("EISDIR (Is a directory)".to_owned()) },
            ]
        );
        assert_eq!(files.iter().map(NamedFile::is_directory).collect::<Vec<_>>(), [false, false, true]);
        let many = (0..100).map(|number| set("NCCL_TOPO_FILE", &format!("/{number}"))).collect();
        assert_eq!(read(&Reader::new(root.path()), start, &Settings(many)).len(), MOST);
    }
}
