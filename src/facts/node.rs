//! Whether this process can open device nodes in /dev.

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use super::reader::{self, Reader};
use crate::json::known_texts;

/// The result of opening a device node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Access {
    #[default]
    Opened,
    /// The node does not exist, so the device is not allotted to this container.
    NoNode,
    /// The error, including the errno's name.
    Failed(String),
}

known_texts!(Access::Failed, Opened = "opened", NoNode = "no node");

/// Opens a node for reading and writing without blocking, and closes it again.
pub(crate) fn try_open(reader: &Reader, path: &str) -> Access {
    match open(&reader.path(path), OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK, Mode::empty()) {
        Ok(_) => Access::Opened,
        Err(Errno::ENOENT | Errno::ENOTDIR) => Access::NoNode,
        Err(errno) => Access::Failed(reader::describe(errno)),
    }
}
