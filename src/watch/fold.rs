//! Limits how often the watcher reports lines of one kind.

use std::time::Duration;

use crate::finding::{Finding, Id, Severity};
use crate::text::counted;

/// Within an hour, lines of one kind and severity are reported after this many readings; later ones are
/// only counted. The lines of one reading count once, and notes do not count against warnings.
const MOST: usize = 6;
const WINDOW: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct Fold(Vec<Window>);

struct Window {
    id: Id,
    severity: Severity,
    began: Duration,
    /// How many readings had a reported line, and when the last one was.
    looks: usize,
    last: Duration,
    left_out: usize,
}

impl Fold {
    /// Returns the findings to report at this time since the start.
    pub(super) fn pass(&mut self, at: Duration, findings: Vec<Finding>) -> Vec<Finding> {
        let (over, current) = self.0.drain(..).partition(|window| at.saturating_sub(window.began) >= WINDOW);
        self.0 = current;
        let over: Vec<Window> = over;
        let left_out = over.iter().filter(|window| window.left_out > 0);
        let mut said: Vec<Finding> = left_out.map(sum).collect();
        said.extend(findings.into_iter().filter(|finding| self.admits(at, finding)));
        said
    }

    fn admits(&mut self, at: Duration, finding: &Finding) -> bool {
        let (id, severity) = (finding.id, finding.severity);
        let Some(window) = self.0.iter_mut().find(|window| (window.id, window.severity) == (id, severity))
        else {
            self.0.push(Window { id, severity, began: at, looks: 1, last: at, left_out: 0 });
            return true;
        };
        if window.last == at {
            return true;
        }
        if window.looks < MOST {
            (window.looks, window.last) = (window.looks + 1, at);
            return true;
        }
        window.left_out += 1;
        false
    }
}

fn sum(window: &Window) -> Finding {
    let message = format!(
        "{} of this kind followed within an hour and were omitted.",
        counted(window.left_out, "more line")
    );
    Finding::info(window.id, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_lines_of_a_kind_are_said_in_an_hour() {
        let mut fold = Fold::default();
        let mut said = |seconds, id| {
            let findings = vec![Finding::info(id, "It happened.".to_owned())];
            let said = fold.pass(Duration::from_secs(seconds), findings);
            said.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
        };
        for second in 0..6 {
            assert_eq!(said(second, Id::LinkDown), ["It happened."]);
        }
        assert!(said(6, Id::LinkDown).is_empty());
        assert!(said(7, Id::LinkDown).is_empty());
        assert_eq!(said(8, Id::LostPackets), ["It happened."], "another kind has lines of its own");
        let next = said(3600, Id::LinkDown);
        assert_eq!(
            next,
            ["2 more lines of this kind followed within an hour and were omitted.", "It happened."]
        );
        assert_eq!(said(3601, Id::LinkDown), ["It happened."]);
    }

    #[test]
    fn the_ports_of_a_look_are_one_and_notes_leave_room_for_warnings() {
        let mut fold = Fold::default();
        let mut count = |seconds, finding: fn(Id, String) -> Finding| {
            let findings = (0..8).map(|_| finding(Id::LinkDown, "It happened.".to_owned())).collect();
            fold.pass(Duration::from_secs(seconds), findings).len()
        };
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|second| count(second, Finding::info)), [8, 8, 8, 8, 8, 8, 0]);
        assert_eq!(count(7, Finding::warning), 8);
    }
}
