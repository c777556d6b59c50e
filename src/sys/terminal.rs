//! The terminal at standard error: its width, its colors, and a line at its bottom that is rewritten repeatedly.

use std::io::IsTerminal;

use nix::libc;

use super::stdio::Stderr;

/// Moves to the start of the line, and clears it.
const START: &str = "\r";
const CLEAR: &str = "\x1b[K";

/// The width of a terminal that does not report it.
const USUAL: usize = 80;

/// Returns how many characters fit into a line of the terminal at standard error.
pub(crate) fn columns() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request only writes the structure.
    let said = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if said == -1 || size.ws_col == 0 { USUAL } else { usize::from(size.ws_col) }
}

/// Returns whether the terminal shows colors, and the user wants them (the variables `TERM` and, of no-color.org,
/// `NO_COLOR`).
fn has_colors() -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("TERM").is_some_and(|kind| kind != "dumb") && variable("NO_COLOR").is_none()
}

/// Fits a report to the terminal at standard error: breaks its lines between words, and colors the words that say how bad
/// something is. Without a terminal, returns it unchanged.
pub(crate) fn fit(text: String) -> String {
    if !std::io::stderr().is_terminal() {
        return text;
    }
    let text = wrap(&text, columns());
    if has_colors() { color(&text) } else { text }
}

/// Breaks lines between words so that each has at most this many characters. A line that continues another begins below
/// the last column of that one, if it is a row of a table, otherwise a little to the right. What a person may copy stays
/// whole: a longer word, a fix, and a line that may contain a command with its options.
fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if line[indent..].starts_with("fix:") || line.contains(" --") {
            wrapped.push_str(line);
            continue;
        }
        let column = line.trim_end().rfind("  ").map_or(0, |at| line[..at + 2].chars().count());
        let next = if indent < column && column <= width / 2 { column } else { indent + 4 };
        let mut length = 0;
        for word in line.split_inclusive(' ') {
            let wide = word.trim_end().chars().count();
            if length + wide > width && length > next {
                wrapped.truncate(wrapped.trim_end_matches(' ').len());
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(next));
                length = next;
            }
            wrapped.push_str(word);
            length += word.chars().count();
        }
    }
    wrapped
}

/// Words at the start of a line, after spaces or the program's name, and their colors (ECMA-48).
const COLORS: [(&str, &str); 5] =
    [("error:", "1;31"), ("FAILED:", "1;31"), ("warning:", "33"), ("fix:", "32"), ("note:", "36")];

fn color(text: &str) -> String {
    let mut colored = String::new();
    for line in text.split_inclusive('\n') {
        let rest = line.strip_prefix("rdma-init: ").unwrap_or(line).trim_start_matches(' ');
        let (before, rest) = line.split_at(line.len() - rest.len());
        colored.push_str(before);
        match COLORS.iter().find(|(word, _)| rest.starts_with(word)) {
            Some((word, code)) => {
                let after = &rest[word.len()..];
                colored.push_str(&format!("\x1b[{code}m{word}\x1b[0m{after}"));
            }
            None => colored.push_str(rest),
        }
    }
    colored
}

pub(crate) struct Line {
    stderr: Stderr,
}

impl Line {
    /// Returns `None` if standard error is not a terminal, or if its type (the variable `TERM`) is unknown or
    /// cannot clear a line.
    pub(crate) fn at_stderr(kind: Option<&str>) -> Option<Line> {
        let can_clear = kind.is_some_and(|kind| !kind.is_empty() && kind != "dumb");
        // A stopped terminal loses lines, but causes no delay.
        (can_clear && std::io::stderr().is_terminal()).then(|| Line { stderr: Stderr::at_once() })
    }

    /// Rewrites the line. Cuts a text that does not fit.
    pub(crate) fn show(&self, text: &str) {
        // The last column stays free, because some terminals wrap to the next line after it.
        let text: String = text.chars().take(columns().saturating_sub(1)).collect();
        self.stderr.put(format!("{START}{text}{CLEAR}").as_bytes());
    }

    /// Clears the line, so that another one can take its place.
    pub(crate) fn clear(&self) {
        self.stderr.put(format!("{START}{CLEAR}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_words_below_its_last_column() {
        let text = "  set    NCCL_IB_HCA  =mlx5_1  the HCAs to use (profile)\n  warning: one two three four\nshort\n";
        let broken = "  set    NCCL_IB_HCA  =mlx5_1  the HCAs\n      to use (profile)\n  warning: one two three four\nshort\n";
        assert_eq!(wrap(text, 40), broken);
        let in_column = "  yours  NAME  the first words of a\n               reason\n";
        assert_eq!(wrap("  yours  NAME  the first words of a reason\n", 36), in_column);
        let long = "rdma-init: see https://example.org/a/long/path now\n";
        let whole = "rdma-init: see\n    https://example.org/a/long/path\n    now\n";
        assert_eq!(wrap(long, 20), whole);
        let copied = "      fix: docker run --gpus all IMAGE\nUse docker run --init IMAGE instead.\n";
        assert_eq!(wrap(copied, 20), copied);
        assert_eq!(wrap("", 10), "");
        for width in 0..20 {
            let whole: String = wrap(text, width).split_whitespace().collect();
            assert_eq!(whole, text.split_whitespace().collect::<String>(), "no word is lost");
        }
    }

    #[test]
    fn only_the_word_that_says_how_bad_it_is_has_a_color() {
        assert_eq!(
            color("rdma-init: error: no\n      fix: it\n"),
            "rdma-init: \x1b[1;31merror:\x1b[0m no\n      \x1b[32mfix:\x1b[0m it\n"
        );
        assert_eq!(color("rdma-init: an error: no"), "rdma-init: an error: no");
    }
}
