//! What a child tells through its pipe: lines of JSON.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::super::device::DeviceProbe;

/// Bytes; a probe tells a few thousand.
pub const LIMIT: usize = 64 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// What it does next.
    At(String),
    Found(Box<DeviceProbe>),
}

impl Message {
    /// # Errors
    /// When nobody reads.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        out.write_all(&line)
    }
}

/// All that a child has told.
#[derive(Debug, Default)]
pub struct Told {
    bytes: Vec<u8>,
}

impl Told {
    /// Whether there is room for more.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let fits = self.bytes.len() + bytes.len() <= LIMIT;
        if fits {
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    /// The step that it was at, and what it found. A line that was cut is none.
    pub fn read(&self) -> (Option<String>, Option<Box<DeviceProbe>>) {
        let (mut at, mut found) = (None, None);
        for line in self.bytes.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Message::At(step)) => at = Some(step),
                Ok(Message::Found(probe)) => found = Some(probe),
                Err(_) => {}
            }
        }
        (at, found)
    }

    /// Whether something is there that is no message.
    pub fn is_garbled(&self) -> bool {
        let mut lines = self.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.any(|line| serde_json::from_slice::<Message>(line).is_err())
    }
}
