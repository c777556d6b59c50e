//! Tests that tables stay easy to look up: a cell contains a phrase, and longer text is outside the table.

use std::fs;

use super::markdown;
use crate::support::repository;

/// The longest cell, in words.
const LONGEST: usize = 25;

#[test]
fn no_cell_is_a_paragraph() {
    for path in markdown() {
        let text = fs::read_to_string(repository(&path)).unwrap();
        for (number, line) in text.lines().enumerate() {
            if let Some(words) = longest_cell(line).filter(|words| *words > LONGEST) {
                let path = path.display();
                panic!("{path}:{}: a cell has {words} words; {LONGEST} are enough for a table", number + 1);
            }
        }
    }
}

/// Returns the words of the longest cell in a line of a table.
fn longest_cell(line: &str) -> Option<usize> {
    let row = line.strip_prefix('|')?;
    row.split('|').map(|cell| cell.split_whitespace().count()).max()
}

#[test]
fn words_are_counted_in_each_cell() {
    assert_eq!(longest_cell("| a b | c |"), Some(2));
    assert_eq!(longest_cell("a | b"), None);
}
