//! The environment that rdma-init was started with.

use std::ffi::CString;

use serde::{Deserialize, Serialize};

use crate::finding::Source;

/// The environment as names and values, for lookups; the command gets the original bytes.
#[derive(Debug, Clone, Default)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// Returns the environment without these variables; an entry with another value is not one of them.
    pub fn without(&self, filled: &[Filled]) -> Environment {
        let is_other = |(name, value): &&(String, String)| {
            !filled.iter().any(|known| known.variable == *name && known.value == *value)
        };
        Environment(self.0.iter().filter(is_other).cloned().collect())
    }

    /// Parses the environment. Replaces bytes that are not UTF-8 with replacement characters.
    pub fn new(entries: &[CString]) -> Environment {
        Environment(
            entries
                .iter()
                .filter_map(|entry| {
                    let bytes = entry.as_bytes();
                    let equals = bytes.iter().position(|byte| *byte == b'=')?;
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    Some((text(&bytes[..equals]), text(&bytes[equals + 1..])))
                })
                .collect(),
        )
    }

    /// Parses the content of `/proc/PID/environ`.
    pub fn of_process(bytes: &[u8]) -> Environment {
        let entries = bytes.split(|byte| *byte == 0).filter_map(|entry| CString::new(entry).ok());
        Environment::new(&entries.collect::<Vec<_>>())
    }

    /// Returns the value of a variable. If a name has several entries, the first one counts, as for
    /// getenv(3).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(pairs: [(&str, &str); N]) -> Environment {
        Environment(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
    }
}

/// Returns whether every shell, file, and launcher on the way can handle a variable with this name.
pub fn is_variable_name(text: &str) -> bool {
    text.chars().all(is_of_name) && text.starts_with(|c: char| !c.is_ascii_digit())
}

/// A variable that rdma-init filled in when this container started, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filled {
    pub variable: String,
    pub value: String,
    /// The origin of the decision: the facts, or a profile.
    pub source: Source,
    pub rule: String,
}

/// Returns whether a variable's name may have this character.
pub fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
