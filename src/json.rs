//! Documents for programs. One sink and one source for all, as each kind of them is
//! another copy of the code of every document.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::{DeserializeOwned, Error};

/// Writes a document over several lines.
///
/// # Errors
/// Whatever the sink gives.
pub fn write(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// Writes a document on a line of its own.
///
/// # Errors
/// Whatever the sink gives.
pub fn write_line(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, document)?;
    writeln!(out)
}

/// A document on a line of its own, in memory.
pub fn line(document: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::new();
    // Memory takes anything.
    let _ = write_line(&mut line, document);
    line
}

/// Reads what is nothing but one document.
///
/// # Errors
/// It is not UTF-8, not JSON, or another document.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_str(std::str::from_utf8(bytes).map_err(Error::custom)?)
}
