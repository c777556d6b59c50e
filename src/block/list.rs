//! Our own entries in a JSON list that belongs to others, between the same two marks, which are entries
//! themselves. No name is equal to a mark, so a program that looks up names in such a list ignores the
//! marks.

use serde_json::Value;

use super::{BEGIN, END};
use crate::json;

/// The text is something else than a JSON list, or has an entry that would not stay as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoList;

/// Returns the entries that are not ours.
///
/// # Errors
/// The text is not a JSON list.
pub(crate) fn without(text: &str) -> Result<Vec<Value>, NoList> {
    let entries = entries(text)?;
    // Our block is the last one. A mark without its counterpart is not a block.
    let begin = entries.iter().rposition(|entry| entry == BEGIN);
    let end = begin.and_then(|begin| Some(begin + entries[begin..].iter().position(|entry| entry == END)?));
    match (begin, end) {
        (Some(begin), Some(end)) => Ok(entries[..begin].iter().chain(&entries[end + 1..]).cloned().collect()),
        _ => Ok(entries),
    }
}

/// Returns the strings in the list, including ours, without the marks.
///
/// # Errors
/// The text is not a JSON list.
pub(crate) fn names(text: &str) -> Result<Vec<String>, NoList> {
    let entries = entries(text)?;
    let texts = entries.iter().filter_map(Value::as_str).filter(|text| ![BEGIN, END].contains(text));
    Ok(texts.map(str::to_owned).collect())
}

fn entries(text: &str) -> Result<Vec<Value>, NoList> {
    match text.trim() {
        "" => Ok(Vec::new()),
        text => serde_json::from_str(text).map_err(|_| NoList),
    }
}

/// Returns the text with these entries in a block at its end, which replaces an earlier block. Omits
/// entries that the list already contains.
///
/// # Errors
/// The text is no JSON list, or has a number that would be another one afterwards.
pub(crate) fn with(text: &str, ours: &[&str]) -> Result<String, NoList> {
    let own = without(text)?;
    let new: Vec<&str> = ours.iter().copied().filter(|ours| !own.iter().any(|entry| entry == ours)).collect();
    let block = [BEGIN].into_iter().chain(new.iter().copied()).chain([END]);
    let block = block.filter(|_| !new.is_empty()).map(Value::from);
    let all: Vec<Value> = own.iter().cloned().chain(block).collect();
    // If nothing changes, the text keeps its formatting.
    if serde_json::from_str::<Vec<Value>>(text).is_ok_and(|entries| entries == all)
        || text.trim().is_empty() && all.is_empty()
    {
        return Ok(text.to_owned());
    }
    let mut new = Vec::new();
    json::write(&mut new, &all).map_err(|_| NoList)?;
    let new = String::from_utf8(new).map_err(|_| NoList)?;
    if without(&new)? == own { Ok(new) } else { Err(NoList) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fuzzer found this: each start added another block.
    #[test]
    fn a_mark_that_is_left_alone_hides_no_block() {
        for user in [format!("[\"{END}\", \"MINE\"]"), format!("[\"{BEGIN}\", \"MINE\"]")] {
            let first = with(&user, &["NCCL_NET"]).unwrap();
            assert_eq!(with(&first, &["NCCL_NET"]).unwrap(), first);
        }
    }

    #[test]
    fn the_users_entries_stay_and_ours_are_replaced() {
        let user = "[\"MINE\",  \"NCCL_IB_TC\"]";
        let first = with(user, &["NCCL_IB_HCA", "NCCL_IB_TC"]).unwrap();
        assert_eq!(
            first,
            format!(
                "[\n  \"MINE\",\n  \"NCCL_IB_TC\",\n  \"{BEGIN}\",\n  \"NCCL_IB_HCA\",\n  \"{END}\"\n]\n"
            )
        );
        assert_eq!(with(&first, &["NCCL_IB_HCA"]).unwrap(), first);
        let second = with(&first, &["NCCL_NET"]).unwrap();
        assert!(second.contains("NCCL_NET") && !second.contains("IB_HCA") && second.contains("MINE"));
        assert_eq!(without(&second).unwrap(), ["MINE", "NCCL_IB_TC"]);
        assert_eq!(with(&second, &[]).unwrap(), "[\n  \"MINE\",\n  \"NCCL_IB_TC\"\n]\n");
        // If nothing changes, the text keeps its formatting.
        assert_eq!(with(user, &["MINE"]).unwrap(), user);
        assert_eq!(with("", &[]).unwrap(), "");
        assert!(with("\n", &["A"]).unwrap().starts_with("[\n  \"# rdma-init: begin"));
        assert_eq!(with("[1, {\"a\": 2}]", &[]).unwrap(), "[1, {\"a\": 2}]");
    }

    #[test]
    fn what_is_no_list_stays() {
        for text in ["{\"A\": 1}", "\"A\"", "[\"A\",]", "A", "[", "\u{feff}[]"] {
            assert_eq!(with(text, &["B"]), Err(NoList), "{text}");
        }
    }

    /// Found by the fuzzer: the parser of numbers is not exact.
    #[test]
    fn a_list_whose_entries_would_change_stays() {
        let numbers = "[\"A\", 7777777777777766666666666666666667677777777777776]";
        assert_eq!(with(numbers, &["B"]), Err(NoList));
        assert!(with("[\"A\", 7, 0.5]", &["B"]).is_ok());
    }

    #[test]
    fn unpaired_markers_hide_nothing() {
        for text in [format!("[\"{BEGIN}\", \"A\"]"), format!("[\"{END}\", \"A\", \"{BEGIN}\"]")] {
            assert!(without(&text).unwrap().contains(&Value::from("A")), "{text}");
        }
    }
}
