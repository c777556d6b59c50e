//! `NCCL_ALGO` and `NCCL_PROTO`, where an unknown word is an error (`src/graph/tuning.cc`, `parseList`).

use super::checks::Wrong;
use super::{Decided, shown};
use crate::facts::settings::UserSetting;
use crate::finding::Severity;
use crate::libraries::nccl::version::Version;

/// Earlier releases ignored unknown words.
const IS_STRICT: Version = Version::new(2, 24, 0);

const LISTS: &[(&str, &[&str])] = &[
    ("NCCL_ALGO", &["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"]),
    ("NCCL_PROTO", &["LL", "LL128", "Simple"]),
];

/// The words that may come before a colon.
const FUNCTIONS: &[&str] = &["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"];

/// Reports a list with a word that the release does not know. If the release is unknown, the newest one counts.
pub(super) fn unknown_word(decided: &Decided, setting: &UserSetting) -> Option<Wrong> {
    if decided.version() < IS_STRICT {
        return None;
    }
    let (_, words) = LISTS.iter().find(|(name, _)| *name == setting.variable)?;
    let why = fault(&setting.value, words)?;
    let message =
        format!("{}: {why}, and {} 2.24 and later fail on that.", shown(setting), decided.library());
    let fix = format!(
        "Write words from {}, separated by commas; AllReduce:{},{} is for only one function, and ^ before a list excludes its words.",
        words.join(", "),
        words[0],
        words[1]
    );
    let severity = if decided.user.version().is_some() { Severity::Error } else { Severity::Warning };
    Some(Wrong { severity, message, fix: Some(fix) })
}

/// Returns whether NCCL knows all words of a list.
pub(super) fn is_right(variable: &str, text: &str) -> bool {
    LISTS.iter().filter(|(name, _)| *name == variable).all(|(_, words)| fault(text, words).is_none())
}

/// Returns what is wrong with a list such as `Ring,Tree;AllReduce:^NVLS`. Ignores empty parts.
fn fault(text: &str, words: &[&str]) -> Option<String> {
    let parts = text.split(';').filter(|part| !part.is_empty());
    for (index, part) in parts.enumerate() {
        let mut fields = part.split(':').filter(|field| !field.is_empty());
        let (first, second) = (fields.next()?, fields.next());
        let list = match second {
            Some(_) if !FUNCTIONS.iter().any(|known| known.eq_ignore_ascii_case(first)) => {
                return Some(format!("{first:?} is not a function"));
            }
            Some(list) => list,
            None if index > 0 => {
                return Some(format!("{part:?} names no function; only the first list may omit it"));
            }
            None => first,
        };
        let list = list.strip_prefix('^').unwrap_or(list);
        let unknown = list.split(',').filter(|word| !word.is_empty());
        if let Some(word) =
            unknown.into_iter().find(|word| !words.iter().any(|known| known.eq_ignore_ascii_case(word)))
        {
            return Some(format!("the word {word:?} is unknown here"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_nccl_reads_them() {
        let fault = |text| fault(text, LISTS[0].1);
        for right in [
            "Ring",
            "ring,tree",
            "^NVLS",
            "",
            ";",
            "ring,collnetdirect;allreduce:tree;broadcast:^ring",
            "Tree,",
        ] {
            assert_eq!(fault(right), None, "{right}");
        }
        assert_eq!(fault("ring,tre").unwrap(), "the word \"tre\" is unknown here");
        assert_eq!(fault("allreduc:ring").unwrap(), "\"allreduc\" is not a function");
        assert_eq!(
            fault("ring;tree").unwrap(),
            "\"tree\" names no function; only the first list may omit it"
        );
        assert_eq!(fault(" Ring").unwrap(), "the word \" Ring\" is unknown here");
    }
}
