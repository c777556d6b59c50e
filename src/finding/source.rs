//! The source of a value.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The source of a variable, or of a line that was meant to set one. Documents contain the text of
/// [`fmt::Display`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Source {
    /// The environment that rdma-init was started with.
    Environment,
    /// The environment, but rdma-init itself put the value there when the container started.
    AtStart,
    /// The key `set` of rdma-init's own configuration.
    Configuration,
    /// The container's facts: its HCAs, interfaces and image.
    Facts,
    /// The profile with this name.
    Profile(String),
    /// One of NCCL's conf files, and the line number, counted from 1.
    ConfFile { path: String, line: usize },
    /// Any other source that a document contains.
    Other(String),
}

const ENVIRONMENT: &str = "environment";
const AT_START: &str = "rdma-init, when this container started";
const CONFIGURATION: &str = "configuration";
const FACTS: &str = "facts";
const PROFILE: &str = "profile ";

impl Source {
    /// Returns the path if the source is a conf file.
    #[must_use]
    pub fn conf_file(&self) -> Option<&str> {
        match self {
            Source::ConfFile { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Returns whether this process's environment contains the value.
    #[must_use]
    pub fn is_environment(&self) -> bool {
        matches!(self, Source::Environment | Source::AtStart)
    }
}

/// The source for a document that does not name one.
impl Default for Source {
    fn default() -> Source {
        Source::Other(String::new())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Source::Environment => f.write_str(ENVIRONMENT),
            Source::AtStart => f.write_str(AT_START),
            Source::Configuration => f.write_str(CONFIGURATION),
            Source::Facts => f.write_str(FACTS),
            Source::Profile(name) => write!(f, "{PROFILE}{name}"),
            Source::ConfFile { path, line } => write!(f, "{path}:{line}"),
            Source::Other(text) => f.write_str(text),
        }
    }
}

impl From<Source> for String {
    fn from(source: Source) -> String {
        source.to_string()
    }
}

impl From<String> for Source {
    fn from(text: String) -> Source {
        let in_file = || {
            let (path, line) = text.rsplit_once(':')?;
            Some(Source::ConfFile { path: path.to_owned(), line: line.parse().ok()? })
        };
        match text.as_str() {
            ENVIRONMENT => Source::Environment,
            AT_START => Source::AtStart,
            CONFIGURATION => Source::Configuration,
            FACTS => Source::Facts,
            _ => match text.strip_prefix(PROFILE) {
                Some(name) => Source::Profile(name.to_owned()),
                None => in_file().unwrap_or(Source::Other(text)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_spells_each_as_it_is_read() {
        let sources = [
            Source::Environment,
            Source::AtStart,
            Source::Configuration,
            Source::Facts,
            Source::Profile("cce-roce".to_owned()),
            Source::ConfFile { path: "/etc/a:b.conf".to_owned(), line: 3 },
            Source::Other("a later version's".to_owned()),
        ];
        for source in sources {
            assert_eq!(Source::from(source.to_string()), source);
        }
        let source: Source = serde_json::from_str("\"/etc/nccl.conf:12\"").unwrap();
        assert_eq!(source.conf_file(), Some("/etc/nccl.conf"));
    }
}
