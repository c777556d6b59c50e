//! The messages between a child and its parent, each a line of JSON.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::json;
use crate::verbs::port_test::DeviceProbe;
use crate::verbs::step::Step;
use crate::verbs::talk::End;

/// The most bytes that a child may send. A probe sends a few thousand.
pub(crate) const LIMIT: usize = 64 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// From the child: the step that it takes next.
    At(Step),
    /// From the child: its result.
    Found(Box<DeviceProbe>),
    /// From the child: its own end of a rail. To the child: the other node's end.
    End(End),
    /// From the child: it can receive. To the child: the other node can receive as well.
    Ready,
}

impl Message {
    /// # Errors
    /// The other side has stopped reading.
    pub(crate) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        out.write_all(&json::line(self))
    }
}

/// Everything that a child has sent so far.
#[derive(Debug, Default)]
pub(crate) struct ChildReport {
    bytes: Vec<u8>,
}

impl ChildReport {
    /// Adds the bytes that were read. Returns `false` if the total exceeds [`LIMIT`].
    #[must_use]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let fits = self.bytes.len() + bytes.len() <= LIMIT;
        if fits {
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    /// Returns the messages. A line that is not a message, for example because it was cut off, is an
    /// error.
    fn messages(&self) -> impl Iterator<Item = Result<Message, serde_json::Error>> {
        let lines = self.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(json::read)
    }

    /// Returns the last step that the child reported, and the result.
    pub(crate) fn read(&self) -> (Option<Step>, Option<Box<DeviceProbe>>) {
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

    pub(crate) fn end(&self) -> Option<End> {
        self.messages().flatten().find_map(|message| match message {
            Message::End(end) => Some(end),
            _ => None,
        })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.messages().any(|message| matches!(message, Ok(Message::Ready)))
    }

    /// Returns whether the child has sent something that is not a message.
    pub(crate) fn is_garbled(&self) -> bool {
        self.messages().any(|message| message.is_err())
    }
}
