//! JSON documents. All share one type of sink and one type of source, because each further type would add
//! another copy of every document's code.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::{DeserializeOwned, Error};

/// Writes a document over several lines.
///
/// # Errors
/// Fails if the sink does.
pub(crate) fn write(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// Writes a document on its own line.
///
/// # Errors
/// Fails if the sink does.
pub(crate) fn write_line(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, document)?;
    writeln!(out)
}

/// Returns a document on its own line.
pub(crate) fn line(document: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::new();
    // A write to memory cannot fail.
    let _ = write_line(&mut line, document);
    line
}

/// Parses bytes that contain exactly one document.
///
/// # Errors
/// Fails if the bytes are not UTF-8, not JSON, or another document.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_str(std::str::from_utf8(bytes).map_err(Error::custom)?)
}

/// Returns the shape of a message: the names of all fields and variants, and the types of the values:
/// `{node:0,name:""}`.
#[cfg(test)]
pub(crate) fn shape(message: impl Serialize) -> String {
    use serde_json::Value;
    fn of(value: &Value) -> String {
        match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "true".to_owned(),
            Value::Number(_) => "0".to_owned(),
            // The samples' texts are empty, except variants and addresses.
            Value::String(text) => format!("{text:?}"),
            Value::Array(list) => format!("[{}]", list.first().map(of).unwrap_or_default()),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name}:{}", of(value)));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            }
        }
    }
    of(&serde_json::to_value(message).unwrap())
}
