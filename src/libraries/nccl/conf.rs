//! nccl.conf, as NCCL parses it (`src/misc/param.cc`, `setEnvFile`).

use super::version::{REWROTE_PARSERS, SKIPS_COMMENTS, Version};
use crate::facts::settings::Assignment;

/// A variable that a conf file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfLine {
    /// The line number, counted from 1.
    pub number: usize,
    pub key: String,
    pub value: String,
}

/// The size of NCCL's buffers, in bytes, for a key and for a value.
pub const LONGEST: usize = 1023;

/// The size of its line buffer since 2.30; the rest of a longer line counts as the next line.
const LONGEST_LINE: usize = 4095;

/// Splits each line at its first `=`. Trims nothing and treats quotes literally, so ` NCCL_DEBUG` and
/// `export NCCL_DEBUG` are other keys.
pub fn parse(text: &str, version: Version) -> Vec<ConfLine> {
    let mut lines = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        for piece in pieces(line, version) {
            // A C program does not see text after a NUL.
            let piece = piece.split('\0').next().unwrap_or_default();
            let piece = match piece.strip_suffix('\r') {
                Some(stripped) if version >= REWROTE_PARSERS => stripped,
                _ => piece,
            };
            if piece.starts_with('#') && version >= SKIPS_COMMENTS {
                continue;
            }
            if let Some((key, value)) = piece.split_once('=') {
                lines.push(ConfLine { number: index + 1, key: cut(key), value: cut(value) });
            }
        }
    }
    lines
}

/// Returns what the facts keep from a file. The facts are read before the release is known, so this uses the
/// rules from before 2.30; if the difference matters, the plan knows the release.
pub fn assignments(text: &str) -> Vec<Assignment> {
    let lines = parse(text, SKIPS_COMMENTS).into_iter();
    lines.map(|ConfLine { number, key, value }| Assignment { number, name: key, value }).collect()
}

/// Returns the variables that the text sets in any release: releases that do not recognize comments use every
/// line with an equals sign.
pub fn keys(text: &str) -> Vec<String> {
    parse(text, Version::new(2, 18, 0)).into_iter().map(|line| line.key).collect()
}

/// Returns whether a conf file can contain this assignment in every release.
pub fn fits(name: &str, value: &str) -> bool {
    !value.contains(['\n', '\r', '\0']) && value.len() <= LONGEST && name.len() <= LONGEST
}

fn pieces(line: &str, version: Version) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while version >= REWROTE_PARSERS && rest.len() > LONGEST_LINE {
        let (piece, behind) = rest.split_at(boundary(rest, LONGEST_LINE));
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    pieces
}

fn cut(text: &str) -> String {
    text[..boundary(text, LONGEST)].to_owned()
}

/// Returns the last position within this many bytes at which the text can be cut.
fn boundary(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::version::NEWEST;

    fn shown(text: &str, version: Version) -> Vec<String> {
        parse(text, version).iter().map(|l| format!("{}|{}|{}", l.number, l.key, l.value)).collect()
    }

    #[test]
    fn lines_are_taken_literally() {
        let text = "NCCL_DEBUG=INFO\n NCCL_IB_TC=1\nexport NCCL_IB_SL=2\n# NCCL_ALGO=Ring\n\nnonsense\nNCCL_IB_HCA==mlx5_1,mlx5_2\nNCCL_NET=\"IB\" # c";
        assert_eq!(
            shown(text, NEWEST),
            [
                "1|NCCL_DEBUG|INFO",
                "2| NCCL_IB_TC|1",
                "3|export NCCL_IB_SL|2",
                "7|NCCL_IB_HCA|=mlx5_1,mlx5_2",
                "8|NCCL_NET|\"IB\" # c",
            ]
        );
    }

    #[test]
    fn comments_and_carriage_returns_depend_on_the_release() {
        let text = "#A=1\nB=2\r\n";
        assert_eq!(shown(text, Version::new(2, 23, 4)), ["1|#A|1", "2|B|2\r"]);
        assert_eq!(shown(text, Version::new(2, 27, 7)), ["2|B|2\r"]);
        assert_eq!(shown(text, NEWEST), ["2|B|2"]);
    }

    #[test]
    fn long_values_are_cut_where_nccl_cuts_them() {
        let lines = parse(&format!("A={}", "x".repeat(2000)), NEWEST);
        assert_eq!(lines[0].value.len(), 1023);
        assert_eq!(parse(&format!("A={}", "é".repeat(1000)), NEWEST)[0].value.len(), 1022);
        let long = format!("A={}B=1", "x".repeat(4093));
        assert_eq!(parse(&long, NEWEST).len(), 2, "what is behind 4095 bytes is a line of its own");
        assert_eq!(parse(&long, Version::new(2, 29, 7)).len(), 1);
    }
}
