//! How the command is started, as far as that decides which files it uses.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use super::environment::{Environment, Filled};

#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The inherited environment.
    pub environment: &'a Environment,
    /// The working directory, where relative paths start; `None` if it does not matter.
    pub folder: Option<&'a Path>,
    /// The command's first word, if there is a command.
    pub command: Option<&'a str>,
    /// All words of the command.
    pub words: &'a [CString],
    /// The variables that an earlier start of rdma-init has put into the environment, and that are still
    /// there.
    pub filled: &'a [Filled],
    /// Which rdma-init process supervises this one, if any.
    pub keeper: SupervisedBy,
}

/// The process that supervises the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupervisedBy {
    /// rdma-init, as PID 1 of the container.
    Pid1,
    /// rdma-init, if another program is PID 1 (`--supervise`).
    Subreaper,
    NoProcess,
}

impl Start<'_> {
    /// Returns a path as the command would resolve it; an empty path is the working directory.
    pub fn path(&self, path: &str) -> Option<PathBuf> {
        if path.starts_with('/') { Some(PathBuf::from(path)) } else { Some(self.folder?.join(path)) }
    }
}

impl<'a> From<&'a Environment> for Start<'a> {
    fn from(environment: &'a Environment) -> Start<'a> {
        let keeper = SupervisedBy::NoProcess;
        Start { environment, folder: None, command: None, words: &[], filled: &[], keeper }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_lead_from_the_working_folder() {
        let environment = Environment::default();
        let start =
            Start { environment: &environment, folder: Some(Path::new("/app")), ..Start::from(&environment) };
        let path = |path: &str| start.path(path).unwrap().display().to_string();
        assert_eq!(path("/etc/nccl.conf"), "/etc/nccl.conf");
        assert_eq!(path("nccl.conf"), "/app/nccl.conf");
        assert_eq!(path(""), "/app/");
        assert_eq!(Start::from(&environment).path("nccl.conf"), None);
    }
}
