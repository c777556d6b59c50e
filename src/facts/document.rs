//! The facts as a JSON document: what `inspect --json` writes and `--facts` reads.

use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use super::Facts;
use super::secret::{is_secret, shown};
use super::settings::without_secret;
use crate::json;

/// The document's version. It changes if a field changes its meaning or is
/// removed; a new field alone does not change it.
pub const SCHEMA: &str = "rdma-init/facts/1";

/// The facts, together with the versions that a reader of the document needs.
#[derive(Debug, Clone, Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    /// The version of the program that wrote it.
    program: &'static str,
    #[serde(flatten)]
    facts: &'a Facts,
}

impl<'a> Document<'a> {
    pub fn new(facts: &'a Facts) -> Document<'a> {
        Document { schema: SCHEMA, program: env!("CARGO_PKG_VERSION"), facts }
    }
}

impl Document<'_> {
    /// Reads a document.
    ///
    /// # Errors
    /// Returns a sentence that describes what is wrong with the text, and where.
    pub fn parse(text: &str) -> Result<Facts, String> {
        // JSON text that is not a facts document at all has no schema either.
        let head = json::read(text.as_bytes()).or_else(|error| match error.classify() {
            Category::Data => Ok(Head::default()),
            Category::Io | Category::Syntax | Category::Eof => Err(format!("it is not JSON: {error}")),
        })?;
        match head.schema.as_deref() {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(format!(
                    "its schema is {other:?}, but this program reads {SCHEMA:?}; \
                     capture it again with `rdma-init inspect --json` of this version"
                ));
            }
            None => {
                return Err("it has no \"schema\": it was not written by `rdma-init inspect --json`".into());
            }
        }
        let mut facts: Facts =
            json::read(text.as_bytes()).map_err(|error| format!("it is not a facts document: {error}"))?;
        // An older version of rdma-init, which did not hide secrets, may have written the document.
        for setting in &mut facts.settings.0 {
            setting.value = shown(&setting.variable, &setting.value).to_owned();
        }
        facts.filled_at_start.retain(|filled| !is_secret(&filled.variable));
        for line in &mut facts.conf_lines {
            line.text = without_secret(std::mem::take(&mut line.text));
        }
        Ok(facts)
    }
}

/// The part to read first, because other versions may have other fields.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    schema: Option<String>,
}
