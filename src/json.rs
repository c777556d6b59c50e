//! Documents for programs. All share one kind of sink and one kind of source, because each
//! further kind would add another copy of the code of every document. The sink is memory: a document consists of
//! thousands of small pieces.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::{DeserializeOwned, Error};

/// Writes a document over several lines.
///
/// # Errors
/// The error of the sink.
pub(crate) fn write(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// Writes a document on a line of its own.
///
/// # Errors
/// The error of the sink.
pub(crate) fn write_line(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(document)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// A document on a line of its own, in memory.
pub(crate) fn line(document: &impl Serialize) -> Vec<u8> {
    // Memory takes anything, and no document here has a map whose keys are not texts.
    let mut text = serde_json::to_vec(document).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Reads what is nothing but one document.
///
/// # Errors
/// The bytes are not UTF-8, not JSON, or another document.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_str(std::str::from_utf8(bytes).map_err(Error::custom)?)
}

/// The shape of a message: the names of all fields and variants, and the types of the values: `{node:0,name:""}`.
#[cfg(test)]
pub(crate) fn shape(message: impl Serialize) -> String {
    use serde_json::Value;
    fn of(value: &Value) -> String {
        match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "true".to_owned(),
            Value::Number(_) => "0".to_owned(),
            // Those of the samples are empty, but for variants and addresses.
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
