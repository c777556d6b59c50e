//! Limits how often the watcher reports lines of one kind.

use std::collections::BTreeMap;
use std::time::Duration;

use super::WatchedPort;
use crate::finding::{Finding, Id, Severity};
use crate::text::{condensed, counted};

/// Within an hour, lines of one kind and severity about one port are reported after this many readings; later ones are
/// only counted. The lines of one reading count once, and notes do not count against warnings.
const MOST: usize = 6;
const WINDOW: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct Fold {
    windows: Vec<Window>,
    /// The name of each port of the job in lines, by the name that findings have.
    names: BTreeMap<String, String>,
}

struct Window {
    id: Id,
    severity: Severity,
    /// `None` for lines about no port.
    port: Option<String>,
    began: Duration,
    /// How many readings had a reported line, and when the last one was.
    looks: usize,
    last: Duration,
    left_out: usize,
}

impl Window {
    fn admits(&self, at: Duration) -> bool {
        self.last == at || self.looks < MOST
    }

    /// Counts a line at this time.
    fn add(&mut self, at: Duration) {
        if self.last != at && self.looks < MOST {
            (self.looks, self.last) = (self.looks + 1, at);
        }
    }
}

impl Fold {
    pub(super) fn new(ports: &[WatchedPort]) -> Fold {
        let names = ports.iter().map(|port| (port.id(), port.name())).collect();
        Fold { windows: Vec::new(), names }
    }

    /// Takes another name of this port.
    pub(super) fn rename(&mut self, port: &WatchedPort) {
        self.names.insert(port.id(), port.name());
    }

    /// Returns the findings to report at this time since the start.
    pub(super) fn pass(&mut self, at: Duration, findings: Vec<Finding>) -> Vec<Finding> {
        // The windows of the warnings and of the notes about a port end together, so that one line counts both.
        let is_over = |window: &Window| at.saturating_sub(window.began) >= WINDOW;
        let over: Vec<(Id, Option<String>)> = self
            .windows
            .iter()
            .filter(|window| is_over(window))
            .map(|window| (window.id, window.port.clone()))
            .collect();
        let (over, current) = self.windows.drain(..).partition(|window: &Window| {
            over.iter().any(|(id, port)| (*id, port) == (window.id, &window.port))
        });
        self.windows = current;
        let mut said = self.sums(&over, " within an hour");
        said.extend(findings.into_iter().filter(|finding| self.admits(at, finding)));
        said
    }

    /// Returns what to say about the lines that were omitted in the hours that are not over.
    pub(super) fn omitted(&self) -> Vec<Finding> {
        self.sums(&self.windows, "")
    }

    /// A line that is new for one of its ports is reported.
    fn admits(&mut self, at: Duration, finding: &Finding) -> bool {
        let (id, severity) = (finding.id, finding.severity);
        let ports: Vec<Option<String>> = match finding.about.ports.as_slice() {
            [] => vec![None],
            ports => ports.iter().cloned().map(Some).collect(),
        };
        let is_of = |window: &Window, port: &Option<String>| {
            (window.id, window.severity) == (id, severity) && window.port == *port
        };
        let mut is_admitted = false;
        for port in &ports {
            match self.windows.iter().find(|window| is_of(window, port)) {
                Some(window) => is_admitted |= window.admits(at),
                None => {
                    is_admitted = true;
                    let port = port.clone();
                    let window = Window { id, severity, port, began: at, looks: 1, last: at, left_out: 0 };
                    self.windows.push(window);
                }
            }
        }
        for window in &mut self.windows {
            match ports.iter().any(|port| is_of(window, port)) {
                true if is_admitted => window.add(at),
                true => window.left_out += 1,
                false => {}
            }
        }
        is_admitted
    }

    /// Returns a line for the ports about which as many lines of one kind were omitted, warnings and notes together.
    fn sums(&self, windows: &[Window], within: &str) -> Vec<Finding> {
        let mut of_ports: Vec<((Id, &Option<String>), usize)> = Vec::new();
        for Window { id, port, left_out: count, .. } in windows.iter().filter(|window| window.left_out > 0) {
            match of_ports.iter_mut().find(|(known, _)| *known == (*id, port)) {
                Some((_, sum)) => *sum += count,
                None => of_ports.push(((*id, port), *count)),
            }
        }
        let mut left_out: Vec<((Id, usize), Vec<&String>)> = Vec::new();
        for ((id, port), count) in of_ports {
            match left_out.iter_mut().find(|(known, _)| *known == (id, count)) {
                Some((_, ports)) => ports.extend(port),
                None => left_out.push(((id, count), port.iter().collect())),
            }
        }
        left_out.into_iter().map(|((id, count), ports)| self.sum(id, count, &ports, within)).collect()
    }

    fn sum(&self, id: Id, count: usize, ports: &[&String], within: &str) -> Finding {
        let names: Vec<&String> = ports.iter().map(|port| self.names.get(*port).unwrap_or(port)).collect();
        let names = condensed(&names);
        let about = match ports.len() {
            0 => String::new(),
            1 => format!(" about {names}"),
            _ => format!(" about each of {names}"),
        };
        let were = if count == 1 { "was" } else { "were" };
        let lines = counted(count, "more line");
        let message = format!("{lines}{about} ({id}){within} {were} omitted.");
        Finding::info(id, message).about_ports(ports.iter().copied())
    }
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
        assert_eq!(next, ["2 more lines (link-down) within an hour were omitted.", "It happened."]);
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

    /// Two numbers about one port would contradict each other.
    #[test]
    fn warnings_and_notes_that_were_omitted_are_one_line() {
        let mut fold = Fold::default();
        let mut pass = |second: u64, finding: fn(Id, String) -> Finding| {
            let finding = finding(Id::LinkDown, "It happened.".to_owned()).about_ports(["mlx5_0:1"]);
            let said = fold.pass(Duration::from_secs(second), vec![finding]);
            let messages = |all: Vec<Finding>| all.into_iter().map(|one| one.message).collect::<Vec<_>>();
            (messages(said), messages(fold.omitted()))
        };
        for second in 0..10 {
            pass(2 * second, Finding::warning);
            pass(2 * second + 1, Finding::info);
        }
        let line = |within: &str| format!("9 more lines about mlx5_0:1 (link-down){within} were omitted.");
        assert_eq!(pass(20, Finding::info), (Vec::new(), vec![line("")]));
        // The hour of the notes began a second later.
        let said = vec![line(" within an hour"), "It happened.".to_owned()];
        assert_eq!(pass(3600, Finding::warning), (said, Vec::new()));
    }

    #[test]
    fn a_link_that_flaps_hides_no_other_one() {
        let port = |port| WatchedPort {
            hca: "mlx5_1".into(),
            port,
            is_one_of_several: true,
            ..WatchedPort::default()
        };
        let mut fold = Fold::new(&[port(1), port(2)]);
        let mut said = |second: u64, ports: &[&str]| {
            let finding = Finding::warning(Id::LinkDown, ports.concat()).about_ports(ports.iter().copied());
            let said = fold.pass(Duration::from_secs(second), vec![finding]);
            let omitted = fold.omitted().into_iter().map(|one| one.message).collect::<Vec<_>>();
            (said.into_iter().map(|finding| finding.message).collect::<Vec<_>>().join(" "), omitted)
        };
        for second in 0..6 {
            assert_eq!(said(second, &["mlx5_1:1"]), ("mlx5_1:1".to_owned(), Vec::new()));
        }
        let one = "1 more line about mlx5_1:1 (link-down) was omitted.";
        assert_eq!(said(6, &["mlx5_1:1"]), (String::new(), vec![one.to_owned()]));
        // The first line of another port, even beside the one that flaps.
        assert_eq!(said(7, &["mlx5_1:1", "mlx5_1:2"]).0, "mlx5_1:1mlx5_1:2");
        assert_eq!(said(8, &["mlx5_1:2"]).0, "mlx5_1:2");
        let two = |within: &str| format!("2 more lines about mlx5_1:1 (link-down){within} were omitted.");
        assert_eq!(said(9, &["mlx5_1:1"]), (String::new(), vec![two("")]));
        let (next, omitted) = said(3600, &["mlx5_1:1"]);
        assert_eq!((next, omitted), (format!("{} mlx5_1:1", two(" within an hour")), Vec::new()));
    }
}
