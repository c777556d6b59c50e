//! Documents for programs. All share one kind of sink and one kind of source, because each
//! further kind would add another copy of the code of every document.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::{DeserializeOwned, Error};

/// Writes a document over several lines.
///
/// # Errors
/// The error of the sink.
pub fn write(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// Writes a document on a line of its own.
///
/// # Errors
/// The error of the sink.
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
/// The bytes are not UTF-8, not JSON, or another document.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_str(std::str::from_utf8(bytes).map_err(Error::custom)?)
}
