//! JSON documents. All share one type of serializer and one type of source, because each further type would add
//! another copy of every document's code.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::{DeserializeOwned, Error};

/// Writes a document over several lines.
///
/// # Errors
/// Fails if the sink does.
pub(crate) fn write(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    out.write_all(&over_lines(&serde_json::to_vec(document)?))
}

/// Writes a document on its own line.
///
/// # Errors
/// Fails if the sink does.
pub(crate) fn write_line(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(document)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Returns a document on its own line.
pub(crate) fn line(document: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::new();
    // A write to memory cannot fail.
    let _ = write_line(&mut line, document);
    line
}

/// Puts each value of a document on its own line, indented by two spaces for each level.
fn over_lines(document: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(document.len().saturating_mul(2));
    let mut level = 0usize;
    let new_line = |lines: &mut Vec<u8>, level: usize| {
        lines.push(b'\n');
        lines.resize(lines.len() + 2 * level, b' ');
    };
    let mut rest = document;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'"', _) => {
                let (text, after) = after.split_at(length_of_text(after));
                lines.push(b'"');
                lines.extend_from_slice(text);
                rest = after;
            }
            (b'{', [end @ b'}', after @ ..]) | (b'[', [end @ b']', after @ ..]) => {
                lines.extend([*byte, *end]);
                rest = after;
            }
            (b'{' | b'[', _) => {
                lines.push(*byte);
                level += 1;
                new_line(&mut lines, level);
            }
            (b'}' | b']', _) => {
                level = level.saturating_sub(1);
                new_line(&mut lines, level);
                lines.push(*byte);
            }
            (b',', _) => {
                lines.push(b',');
                new_line(&mut lines, level);
            }
            (b':', _) => lines.extend_from_slice(b": "),
            _ => lines.push(*byte),
        }
    }
    lines.push(b'\n');
    lines
}

/// Returns the length of a text up to and including the quotation mark that ends it.
fn length_of_text(text: &[u8]) -> usize {
    let mut length = 0;
    loop {
        let rest = text.get(length..).unwrap_or_default();
        match rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
            Some(place) if rest.get(place) == Some(&b'"') => return length + place + 1,
            // The next byte is part of the escape.
            Some(place) => length += place + 2,
            None => return text.len(),
        }
    }
}

/// Parses bytes that contain exactly one document.
///
/// # Errors
/// Fails if the bytes are not UTF-8, not JSON, or another document.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_str(std::str::from_utf8(bytes).map_err(Error::custom)?)
}

/// Converts an enum from and to the texts that documents and the kernel have for it. The variant in front keeps any
/// other text.
macro_rules! known_texts {
    ($type:ident::$other:ident, $($variant:ident = $text:literal),+) => {
        impl From<String> for $type {
            fn from(text: String) -> $type {
                match text.as_str() {
                    $($text => $type::$variant,)+
                    _ => $type::$other(text),
                }
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                match value {
                    $($type::$variant => $text.into(),)+
                    $type::$other(text) => text,
                }
            }
        }
    };
}
pub(crate) use known_texts;

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_over_lines_is_as_others_write_it() {
        for document in [
            json!(null),
            json!("a"),
            json!([]),
            json!([[], {}, [[]], [{}]]),
            json!({"a": [1, -2.5e9, true], "b": {"c": {"d": "e"}}, "f": {}, "": ""}),
            json!({"\"[{,:": "\\", "x\\\"": ["\\\\\"", "],[", "\n\t\u{1}", "\u{e9}\u{1f600}"]}),
        ] {
            let mut lines = Vec::new();
            write(&mut lines, &document).unwrap();
            let wanted = serde_json::to_string_pretty(&document).unwrap() + "\n";
            assert_eq!(String::from_utf8(lines).unwrap(), wanted);
        }
        // Whatever comes in, nothing fails.
        for odd in ["\"", "\"\\", "}]}", "{\"a\":"] {
            over_lines(odd.as_bytes());
        }
    }
}
