//! `NCCL_NET_GDR_LEVEL`, `NCCL_P2P_LEVEL` (`src/graph/paths.cc`, `ncclGetLevel`).

use super::number::strtoll;
use super::version::Version;

/// The names, shortest distance first, with the first release that recognizes each.
const NAMES: &[(&str, Version)] = &[
    ("LOC", Version::new(0, 0, 0)),
    ("NVL", Version::new(0, 0, 0)),
    ("NVB", Version::new(0, 0, 0)),
    ("C2C", Version::new(2, 26, 0)),
    ("PIX", Version::new(0, 0, 0)),
    ("PXB", Version::new(0, 0, 0)),
    ("P2C", Version::new(2, 27, 0)),
    ("PXN", Version::new(0, 0, 0)),
    ("PHB", Version::new(0, 0, 0)),
    ("SYS", Version::new(0, 0, 0)),
];

/// The names that the old numbers stand for; larger numbers stand for the last.
const NUMBERS: &[&str] = &["LOC", "PIX", "PXB", "PHB", "SYS"];

/// Returns the level that a release reads from a text; `None` if NCCL ignores it.
pub fn parse(text: &str, version: Version) -> Option<&'static str> {
    if let Some((name, _)) = NAMES.iter().find(|(name, since)| *name == text && version >= *since) {
        return Some(name);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number = usize::try_from(strtoll(text).unwrap_or(i64::MAX)).unwrap_or(usize::MAX);
    Some(NUMBERS[number.min(NUMBERS.len() - 1)])
}

/// Returns the names that a release recognizes.
pub fn names(version: Version) -> Vec<&'static str> {
    NAMES.iter().filter(|(_, since)| version >= *since).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::version::NEWEST;

    #[test]
    fn names_and_numbers_are_levels_and_the_rest_is_ignored() {
        for (text, level) in [
            ("PIX", Some("PIX")),
            ("pix", None),
            ("", None),
            ("0", Some("LOC")),
            ("1", Some("PIX")),
            ("4", Some("SYS")),
            ("5", Some("SYS")),
            ("99", Some("SYS")),
            ("0x2", Some("PXB")),
            ("2 or so", Some("PXB")),
            ("-1", None),
            ("DIS", None),
            ("P2C", Some("P2C")),
        ] {
            assert_eq!(parse(text, NEWEST), level, "{text:?}");
        }
        assert_eq!(parse("P2C", Version::new(2, 21, 5)), None);
    }
}
