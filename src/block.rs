//! Our own lines in a file that belongs to others, between two marks. Programs that read such files
//! treat the marks as comments. NCCL before 2.24 does not support comments, but ignores the marks,
//! because they have no equals sign.

pub(crate) mod list;

use std::borrow::Cow;
use std::collections::HashSet;

const BEGIN: &str = "# rdma-init: begin (written at each start; changes in here are lost)";
const END: &str = "# rdma-init: end";

/// Returns whether rdma-init may have written a variable with this name.
pub(crate) type MayWrite = fn(&str) -> bool;

/// Returns the text with empty lines in place of our blocks, so that the other lines keep their
/// numbers. A last mark without a first one is not a block.
pub(crate) fn hidden(text: &str, may_write: MayWrite) -> Cow<'_, str> {
    if !text.contains(BEGIN) {
        return Cow::Borrowed(text);
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let shown =
        lines.iter().zip(ours(&lines, may_write)).map(|(line, is_ours)| if is_ours { "" } else { *line });
    Cow::Owned(shown.collect::<Vec<_>>().join("\n"))
}

/// Returns the lines of the text that are in our blocks.
pub(crate) fn lines(text: &str, may_write: MayWrite) -> Vec<&str> {
    numbered(text, may_write).into_iter().map(|(_, line)| line).collect()
}

/// Does the same with the number of each line, counted from 1.
pub(crate) fn numbered(text: &str, may_write: MayWrite) -> Vec<(usize, &str)> {
    let shown = hidden(text, may_write);
    let both = text.split('\n').zip(shown.split('\n')).enumerate();
    let ours = both.filter(|(_, (line, shown))| line != shown);
    let ours = ours.map(|(index, (line, _))| (index + 1, line.trim_end()));
    ours.filter(|(_, line)| *line != BEGIN && *line != END).collect()
}

/// Returns whether the file has no lines of others: a text or a JSON list of ours alone, or nothing.
pub(crate) fn is_ours_alone(text: &str, may_write: MayWrite) -> bool {
    hidden(text, may_write).trim().is_empty() || list::without(text).is_ok_and(|entries| entries.is_empty())
}

/// Returns for each line whether it is in a block. A block that has lost its last line (the file was cut, or an
/// editor removed it) ends before the first line that no block of ours has: an empty one, a comment, a second
/// one for a key, or a variable that rdma-init does not write, such as `PATH`. A block in another one is a part of
/// that one: it would otherwise become a block when the inner one goes.
fn ours(lines: &[&str], may_write: MayWrite) -> Vec<bool> {
    let (mut ours, mut begun) = (vec![false; lines.len()], Vec::new());
    for (number, line) in lines.iter().enumerate() {
        match line.trim_end() {
            BEGIN => begun.push(number),
            END => {
                let block = begun.pop().and_then(|begin| ours.get_mut(begin..=number));
                block.into_iter().for_each(|block| block.fill(true));
            }
            _ => {}
        }
    }
    for begin in begun {
        let end = begin + 1 + length_without_end(lines.get(begin + 1..).unwrap_or_default(), may_write);
        ours.get_mut(begin..end).into_iter().for_each(|block| block.fill(true));
    }
    ours
}

/// Returns what stands before the equals sign of a line.
pub(crate) fn key_of(line: &str) -> &str {
    line.split_once('=').map_or(line, |(key, _)| key)
}

/// Returns how many of the lines after the first mark are in a block without the second one.
fn length_without_end(lines: &[&str], may_write: MayWrite) -> usize {
    let mut keys = HashSet::new();
    let lines = lines.iter().map(|line| line.trim_end());
    let may_be_ours =
        |line: &&str| !line.is_empty() && !line.starts_with('#') && !is_of_others(line, may_write);
    lines.take_while(|line| may_be_ours(line) && keys.insert(key_of(line))).count()
}

/// Returns whether a line sets a variable that rdma-init does not write of its own accord.
fn is_of_others(line: &str, may_write: MayWrite) -> bool {
    let is_name = |key: &&str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let key = line.split_once('=').map(|(key, _)| key).filter(is_name);
    key.is_some_and(|key| !may_write(key))
}

/// Returns the text with these lines in a block at its end, which replaces an earlier block. Omits a
/// `KEY=VALUE` line if the text sets the key itself; `keys` returns the keys that a text sets.
pub(crate) fn with(text: &str, lines: &str, keys: fn(&str) -> Vec<String>, may_write: MayWrite) -> String {
    let mut own: String = without(text, may_write);
    let set = keys(&own);
    let is_new =
        |line: &&str| line.split('=').next().is_some_and(|key| !set.iter().any(|known| known == key));
    let lines: Vec<&str> = lines.lines().filter(is_new).collect();
    if lines.is_empty() {
        return own;
    }
    if !own.is_empty() && !own.ends_with('\n') {
        own.push('\n');
    }
    format!("{own}{BEGIN}\n{}\n{END}\n", lines.join("\n"))
}

/// Returns the text as the user wrote it, without our blocks.
fn without(text: &str, may_write: MayWrite) -> String {
    if !text.contains(BEGIN) {
        return text.to_owned();
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.iter().zip(ours(&lines, may_write)).filter(|(_, is_ours)| !is_ours).map(|(line, _)| *line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::conf;
    use crate::libraries::nccl::version::{NEWEST, Version};

    const LINES: &str = "NCCL_IB_HCA==mlx5_1\nNCCL_IB_GID_INDEX=3\n";

    fn keys(text: &str, version: Version) -> Vec<String> {
        conf::parse(text, version).into_iter().map(|line| line.key).collect()
    }

    fn may_write(name: &str) -> bool {
        name.starts_with("NCCL_")
    }

    fn with(text: &str, lines: &str) -> String {
        super::with(text, lines, conf::keys, may_write)
    }

    #[test]
    fn no_nccl_release_reads_a_marker_as_a_variable() {
        let text = with("", LINES);
        for version in [Version::new(2, 18, 0), NEWEST] {
            assert_eq!(keys(&text, version), ["NCCL_IB_HCA", "NCCL_IB_GID_INDEX"]);
        }
    }

    #[test]
    fn the_users_lines_stay_and_win() {
        let own = "NCCL_DEBUG=INFO\nNCCL_IB_GID_INDEX=5\n#NCCL_IB_HCA=x";
        let text = with(own, LINES);
        assert_eq!(text, format!("{own}\n{BEGIN}\nNCCL_IB_HCA==mlx5_1\n{END}\n"));
        // The next start replaces the block. A start without any lines removes it.
        assert_eq!(with(&text, LINES), text);
        assert_eq!(with(&text, ""), format!("{own}\n"));
        let moved = format!("{BEGIN}\nNCCL_IB_TC=1\n{END}\n{own}\n");
        assert_eq!(with(&moved, "NCCL_IB_TC=2\n"), format!("{own}\n{BEGIN}\nNCCL_IB_TC=2\n{END}\n"));
        assert_eq!(with("", ""), "");
    }

    #[test]
    fn a_last_mark_alone_hides_nothing() {
        let text = format!("NCCL_IB_TC=1\n{END}\n");
        assert_eq!(hidden(&text, may_write), text);
        assert!(with(&text, LINES).starts_with(&text), "{text}");
    }

    #[test]
    fn a_block_that_has_lost_its_last_line_is_replaced_and_the_users_lines_stay() {
        let torn = format!("{BEGIN}\nNCCL_IB_TC=1\nNCCL_IB_SL=1\n");
        for own in [
            "# mine\nNCCL_DEBUG=INFO\n",
            "\nNCCL_DEBUG=INFO\n",
            "NCCL_IB_TC=5\nNCCL_DEBUG=INFO\n",
            "PATH=/usr/bin\nNCCL_DEBUG=INFO\n",
        ] {
            let text = format!("NCCL_ALGO=Ring\n{torn}{own}");
            assert_eq!(hidden(&text, may_write), format!("NCCL_ALGO=Ring\n\n\n\n{own}"));
            assert_eq!(with(&text, LINES), with(&format!("NCCL_ALGO=Ring\n{own}"), LINES), "{text}");
        }
        let whole = with("", LINES);
        for text in
            [torn.clone(), format!("{torn}NCCL_IB_"), format!("{torn}{torn}"), format!("{torn}{whole}")]
        {
            assert_eq!(with(&text, LINES), whole, "{text}");
        }
    }

    #[test]
    fn a_text_of_ours_alone_is_told_from_one_with_lines_of_others() {
        let list = list::with("", &["NCCL_NET"]).unwrap();
        for text in ["", "\n", &with("", LINES), &list, "[]"] {
            assert!(is_ours_alone(text, may_write), "{text}");
        }
        let list = list::with("[\"MINE\"]", &["NCCL_NET"]).unwrap();
        for text in ["A=1", "# comment\n", &with("A=1", LINES), &list, "[", "{}"] {
            assert!(!is_ours_alone(text, may_write), "{text}");
        }
    }

    /// A fuzzer found that the outer block became one at the second start.
    #[test]
    fn a_block_in_a_block_goes_with_it() {
        let text = format!("A=1\n{BEGIN}\nB=2\n{BEGIN}\nC=3\n{END}\nD=4\n{END}\nE=5\n");
        assert_eq!(hidden(&text, may_write), "A=1\n\n\n\n\n\n\n\nE=5\n");
        let once = with(&text, LINES);
        assert!(once.starts_with(&format!("A=1\nE=5\n{BEGIN}\n")), "{once}");
        assert_eq!(with(&once, LINES), once);
    }

    #[test]
    fn what_is_hidden_keeps_its_place() {
        let text = format!("A=1\n{BEGIN}\r\nB=2\n{END}\nC=3");
        assert_eq!(hidden(&text, may_write), "A=1\n\n\n\nC=3");
        assert_eq!(numbered(&text, may_write), [(3, "B=2")]);
        assert_eq!(conf::parse(&hidden(&text, may_write), NEWEST)[1].number, 5);
    }
}
