//! Documents for programs.

use std::io::{self, Write};

use serde::Serialize;

/// Writes a document over several lines. One sink for all, as each kind of sink is another
/// copy of the code of every document.
///
/// # Errors
/// Whatever the sink gives.
pub fn write(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}
