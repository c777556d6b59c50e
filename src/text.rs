//! Small pieces of text that several reports share.

use std::borrow::Cow;
use std::time::Duration;

/// `mlx5_1..mlx5_8` for names that count up, otherwise the names with commas.
pub fn condensed<T: AsRef<str>>(names: &[T]) -> String {
    condensed_to(names, usize::MAX)
}

/// The names about which the same is said, in the order of the first name of each group.
pub fn grouped<K: PartialEq>(said: impl IntoIterator<Item = (K, String)>) -> Vec<(K, Vec<String>)> {
    let mut groups: Vec<(K, Vec<String>)> = Vec::new();
    for (what, name) in said {
        match groups.iter_mut().find(|(known, _)| *known == what) {
            Some((_, names)) => names.push(name),
            None => groups.push((what, vec![name])),
        }
    }
    groups
}

/// As [`condensed`], with at most this many runs: `node001..node032 and 5 more`.
pub fn condensed_to<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let mut runs: Vec<(&str, &str)> = Vec::new();
    let mut named = 0;
    for name in names.iter().map(AsRef::as_ref) {
        let goes_on = runs.last().is_some_and(|(_, last)| follows(last, name));
        match runs.last_mut() {
            Some((_, last)) if goes_on => *last = name,
            _ => {
                if runs.len() == most {
                    break;
                }
                runs.push((name, name));
            }
        }
        named += 1;
    }
    let shown: Vec<String> = runs
        .iter()
        .map(|(first, last)| match first == last {
            true => (*first).to_owned(),
            false if follows(first, last) => format!("{first}, {last}"),
            false => format!("{first}..{last}"),
        })
        .collect();
    let more = match names.len() - named {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown.join(", ") + &more
}

/// The text with another word in place of a word, where it stands by itself: `NCCL's` has the word
/// NCCL, and `NCCL_NET` has not.
pub fn reworded(text: &str, word: &str, other: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut reworded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        reworded.push_str(before);
        let is_whole = !reworded.ends_with(is_of_word) && !after.starts_with(is_of_word);
        reworded.push_str(if is_whole { other } else { word });
        rest = after;
    }
    reworded + rest
}

fn follows(first: &str, second: &str) -> bool {
    let split = |name: &str| {
        let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, number) = name.split_at(digits);
        Some((stem.to_owned(), number.parse::<u64>().ok()?))
    };
    match (split(first), split(second)) {
        (Some((stem_a, a)), Some((stem_b, b))) => stem_a == stem_b && a.checked_add(1) == Some(b),
        _ => false,
    }
}

/// A time, rounded: to seconds from ten seconds on, to milliseconds below, to microseconds
/// below one millisecond.
pub fn duration(time: Duration) -> String {
    let rounded = if time < Duration::from_millis(1) {
        Duration::from_micros(time.as_micros().try_into().unwrap_or_default())
    } else if time.as_secs() >= 10 {
        Duration::from_secs(time.as_secs())
    } else {
        Duration::from_millis(time.as_millis().try_into().unwrap_or_default())
    };
    humantime::format_duration(rounded).to_string()
}

/// The start of a text, as much of it as a line of a report needs.
pub fn shortened(text: &str) -> Cow<'_, str> {
    const MOST: usize = 300;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => Cow::Owned(format!("{}... ({} bytes)", &text[..end], text.len())),
        None => Cow::Borrowed(text),
    }
}

/// `1 port`, `8 ports`.
pub fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// The text with the full stop that ends a sentence.
pub fn sentence(text: &str) -> String {
    match text.ends_with(['.', '?', '!']) {
        true => text.to_owned(),
        false => format!("{text}."),
    }
}

/// Text that may come from a file or from the user, without characters that would move the
/// cursor or look like a line of ours.
pub fn visible(text: &str) -> String {
    let is_bad = |c: char| c.is_control() || turns(c);
    text.chars().map(|c| if is_bad(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Whether this character shows what follows it in another direction, or on another line.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_replaced_where_it_stands_by_itself() {
        let reworded = |text| super::reworded(text, "NCCL", "RCCL");
        for (text, wanted) in [
            ("NCCL's own, and NCCL 2.27.7.", "RCCL's own, and RCCL 2.27.7."),
            ("NCCL_NET, XNCCL, NCCLs and nccl.conf", "NCCL_NET, XNCCL, NCCLs and nccl.conf"),
            ("(NCCL)", "(RCCL)"),
            ("", ""),
        ] {
            assert_eq!(reworded(text), wanted);
        }
    }

    #[test]
    fn names_that_count_up_are_condensed() {
        assert_eq!(condensed(&["mlx5_1", "mlx5_2", "mlx5_3", "mlx5_5"]), "mlx5_1..mlx5_3, mlx5_5");
        assert_eq!(condensed(&["erdma_0", "erdma_1"]), "erdma_0, erdma_1");
        assert_eq!(condensed(&["mlx5_9", "mlx5_10", "mlx5_11"]), "mlx5_9..mlx5_11");
        assert_eq!(condensed(&["ibp1s0", "rocep"]), "ibp1s0, rocep");
        assert_eq!(condensed::<&str>(&[]), "");
    }

    #[test]
    fn names_that_do_not_fit_are_counted() {
        let names = ["a1", "a2", "a3", "b", "c1", "c2"];
        assert_eq!(condensed_to(&names, 2), "a1..a3, b and 2 more");
        assert_eq!(condensed_to(&names, 3), "a1..a3, b, c1, c2");
    }
}
