//! What a child and its parent tell each other: lines of JSON.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::json;
use crate::verbs::port_test::DeviceProbe;
use crate::verbs::talk::End;

/// Bytes; a probe tells a few thousand.
pub const LIMIT: usize = 64 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// What it does next.
    At(String),
    Found(Box<DeviceProbe>),
    /// Its end of a rail, or for the child that of the other node.
    End(End),
    /// It can receive, or for the child: the other node can as well.
    Ready,
}

impl Message {
    /// # Errors
    /// When nobody reads.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        out.write_all(&json::line(self))
    }
}

/// All that a child has told.
#[derive(Debug, Default)]
pub struct ChildReport {
    bytes: Vec<u8>,
}

impl ChildReport {
    /// Whether there is room for more.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let fits = self.bytes.len() + bytes.len() <= LIMIT;
        if fits {
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    /// A line that was cut is an error, and the last one.
    fn messages(&self) -> impl Iterator<Item = Result<Message, serde_json::Error>> {
        let lines = self.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(json::read)
    }

    /// The step that it was at, and what it found.
    pub fn read(&self) -> (Option<String>, Option<Box<DeviceProbe>>) {
        let (mut at, mut found) = (None, None);
        for message in self.messages().flatten() {
            match message {
                Message::At(step) => at = Some(step),
                Message::Found(probe) => found = Some(probe),
                Message::End(_) | Message::Ready => {}
            }
        }
        (at, found)
    }

    pub fn end(&self) -> Option<End> {
        self.messages().flatten().find_map(|message| match message {
            Message::End(end) => Some(end),
            _ => None,
        })
    }

    pub fn is_ready(&self) -> bool {
        self.messages().any(|message| matches!(message, Ok(Message::Ready)))
    }

    /// Whether something is there that is no message.
    pub fn is_garbled(&self) -> bool {
        self.messages().any(|message| message.is_err())
    }
}
