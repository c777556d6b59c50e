//! How far a preflight is, for people. Pure.

use std::fmt::{Display, Formatter};

use crate::text::counted;

/// A longer bar than the first is never drawn, and a shorter one than the second is useless.
const LONGEST: usize = 40;
const SHORTEST: usize = 10;

/// How many of all things are done, and what is going on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub all: usize,
    /// `node`, `pair`
    pub thing: &'static str,
    /// What follows the count: `have joined`, `are done, round 3 of 6`.
    pub stage: String,
}

/// `48 of 96 pairs are done, round 3 of 6`
impl Display for Progress {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        write!(f, "{} of {} {}", self.done, counted(self.all, self.thing), self.stage)
    }
}

impl Progress {
    /// Returns `[#####.....] 48 of 96 pairs are done, round 3 of 6` for a terminal of this width. If
    /// there are too few columns, the bar is left out.
    pub fn bar(&self, columns: usize) -> String {
        let text = self.to_string();
        let width = columns.saturating_sub(text.chars().count() + 4).min(LONGEST);
        if width < SHORTEST {
            return text;
        }
        let full = (self.done * width).checked_div(self.all).unwrap_or_default().min(width);
        format!("[{}{}] {text}", "#".repeat(full), ".".repeat(width - full))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_shown_if_there_is_room() {
        let of = |done, all, stage: &str| Progress { done, all, thing: "pair", stage: stage.to_owned() };
        let half = of(48, 96, "are done");
        assert_eq!(half.to_string(), "48 of 96 pairs are done");
        assert_eq!(half.bar(40), "[######.......] 48 of 96 pairs are done");
        assert_eq!(half.bar(20), "48 of 96 pairs are done");
        let full = of(1, 1, "are done").bar(200);
        assert_eq!(full, format!("[{}] 1 of 1 pair are done", "#".repeat(LONGEST)));
        assert_eq!(of(0, 0, "x").bar(100), format!("[{}] 0 of 0 pairs x", ".".repeat(LONGEST)));
    }
}
