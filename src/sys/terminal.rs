//! A line at the bottom of the terminal at standard error that is rewritten repeatedly.

use std::io::IsTerminal;

use nix::libc;

use super::stdio::Stderr;

/// Moves to the start of the line, and clears it.
const START: &str = "\r";
const CLEAR: &str = "\x1b[K";

/// The width of a terminal that does not report it.
const USUAL: usize = 80;

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

    /// Returns how many characters fit into a line.
    pub(crate) fn columns(&self) -> usize {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the request only writes the structure.
        let said = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
        if said == -1 || size.ws_col == 0 { USUAL } else { usize::from(size.ws_col) }
    }

    /// Rewrites the line. Cuts a text that does not fit.
    pub(crate) fn show(&self, text: &str) {
        // The last column stays free, because some terminals wrap to the next line after it.
        let text: String = text.chars().take(self.columns().saturating_sub(1)).collect();
        self.stderr.put(format!("{START}{text}{CLEAR}").as_bytes());
    }

    /// Clears the line, so that another one can take its place.
    pub(crate) fn clear(&self) {
        self.stderr.put(format!("{START}{CLEAR}").as_bytes());
    }
}
