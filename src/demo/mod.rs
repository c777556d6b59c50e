//! Hosts to try the program without any hardware (`--facts demo:NAME`), in the form that `inspect
//! --json` would capture.

include!(concat!(env!("OUT_DIR"), "/demo.rs"));

/// Returns the names of the hosts, sorted.
pub fn names() -> Vec<&'static str> {
    HOSTS.iter().map(|(name, _)| *name).collect()
}

/// Returns the facts document of a host.
pub fn host(name: &str) -> Option<&'static str> {
    HOSTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::document::Document;

    #[test]
    fn every_host_can_be_read() {
        for name in names() {
            let facts = Document::parse(host(name).unwrap());
            assert!(facts.is_ok(), "{name}: {facts:?}");
        }
    }
}
