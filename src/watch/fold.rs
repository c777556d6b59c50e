//! Limits how often the watcher reports lines of one kind, and never hides how things are.

use std::collections::BTreeMap;
use std::time::Duration;

use super::track::Track;
use crate::finding::{Finding, Id, Severity};
use crate::text::{condensed, counted, grouped};

/// Within an hour, lines of one kind and severity about one port are reported after this many readings; later ones are
/// only counted. The lines of one reading count once, and notes do not count against warnings.
const MOST: usize = 6;
const WINDOW: Duration = Duration::from_secs(3600);

/// A line about a state is reported after more readings as well, if it comes so long after the last one, and each time
/// twice as long. One that was omitted is said when the state has lasted for so long.
const PAUSE: Duration = Duration::from_secs(60);
const MOST_DOUBLED: u32 = 6;

/// Whether a line is about a state that lasts, or about something that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum About {
    /// If it is about several ports, with its lines about each of them alone: it may stay true of one.
    State(Vec<Finding>),
    Event,
}

#[derive(Default)]
pub(super) struct Fold {
    windows: Vec<Window>,
    /// The last line about a state of each port, if that was omitted.
    held: BTreeMap<(Id, String), Held>,
}

struct Held {
    since: Duration,
    whole: Finding,
    /// The same about this port alone.
    alone: Option<Finding>,
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
    fn admits(&self, at: Duration, about: &About) -> bool {
        let more = u32::try_from(self.looks.saturating_sub(MOST))
            .map_or(MOST_DOUBLED, |more| more.min(MOST_DOUBLED));
        let is_late = || at.saturating_sub(self.last) >= PAUSE * 2_u32.pow(more);
        self.last == at || self.looks < MOST || (*about != About::Event && is_late())
    }

    /// Counts a reported line at this time.
    fn add(&mut self, at: Duration) {
        if self.last != at {
            (self.looks, self.last) = (self.looks + 1, at);
        }
    }
}

impl Fold {
    /// Returns the findings to report at this time since the start, in their order. `tracks` have the names of the ports.
    pub(super) fn pass(
        &mut self,
        at: Duration,
        findings: Vec<(About, Finding)>,
        tracks: &[Track],
    ) -> Vec<Finding> {
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
        let mut said = sums(&over, tracks, true);
        // What is new about a port makes what was omitted before old.
        for (_, finding) in findings.iter().filter(|(about, _)| *about != About::Event) {
            self.held.retain(|(id, port), _| *id != finding.id || !finding.about.ports.contains(port));
        }
        said.extend(self.release(at));
        for (about, finding) in findings {
            if self.admits(at, &finding, &about) {
                said.push(finding);
            } else if let About::State(of_each) = about {
                for port in &finding.about.ports {
                    let alone = of_each.iter().rfind(|one| one.about.ports.contains(port)).cloned();
                    let held = Held { since: at, whole: finding.clone(), alone };
                    self.held.insert((finding.id, port.clone()), held);
                }
            }
        }
        said
    }

    /// Returns what to say about the lines that were omitted in the hours that are not over.
    pub(super) fn omitted(&self, tracks: &[Track]) -> Vec<Finding> {
        sums(&self.windows, tracks, false)
    }

    /// Returns the omitted lines that have been true for a while. One that is not true of all of its ports any more is said
    /// of the others.
    fn release(&mut self, at: Duration) -> Vec<Finding> {
        let mut released: Vec<Finding> = Vec::new();
        let (due, held) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(_, held)| at.saturating_sub(held.since) >= PAUSE);
        self.held = held;
        for ((id, _), Held { whole, alone, .. }) in &due {
            let is_whole =
                |port: &String| due.get(&(*id, port.clone())).is_some_and(|one| one.whole == *whole);
            let line = if whole.about.ports.iter().all(is_whole) { Some(whole) } else { alone.as_ref() };
            if let Some(line) = line
                && !released.contains(line)
            {
                released.push(line.clone());
            }
        }
        for finding in &released {
            for window in self.windows.iter_mut().filter(|window| {
                let is_about = |port: &String| finding.about.ports.contains(port);
                (window.id, window.severity) == (finding.id, finding.severity)
                    && window.port.as_ref().is_some_and(is_about)
            }) {
                window.left_out = window.left_out.saturating_sub(1);
                window.add(at);
            }
        }
        released
    }

    /// A line that is new for one of its ports is reported.
    fn admits(&mut self, at: Duration, finding: &Finding, about: &About) -> bool {
        let (id, severity) = (finding.id, finding.severity);
        let ports: Vec<Option<String>> = match finding.about.ports.as_slice() {
            [] => vec![None],
            ports => ports.iter().cloned().map(Some).collect(),
        };
        let is_same = |window: &Window, port: &Option<String>| {
            (window.id, window.severity) == (id, severity) && window.port == *port
        };
        let mut is_admitted = false;
        for port in &ports {
            match self.windows.iter().find(|window| is_same(window, port)) {
                Some(window) => is_admitted |= window.admits(at, about),
                None => {
                    is_admitted = true;
                    let port = port.clone();
                    let window = Window { id, severity, port, began: at, looks: 1, last: at, left_out: 0 };
                    self.windows.push(window);
                }
            }
        }
        for window in &mut self.windows {
            match ports.iter().any(|port| is_same(window, port)) {
                true if is_admitted => window.add(at),
                true => window.left_out += 1,
                false => {}
            }
        }
        is_admitted
    }
}

/// Returns a line for the ports about which as many lines of one kind were omitted, warnings and notes together. At the
/// end of the hour, it says what is still wrong with them: no later line may.
fn sums(windows: &[Window], tracks: &[Track], is_over: bool) -> Vec<Finding> {
    let omitted = windows.iter().filter(|window| window.left_out > 0);
    let by_port = grouped(omitted.map(|window| ((window.id, &window.port), window.left_out)));
    let state =
        |id: Id, port: Option<&Track>| port.and_then(Track::state).filter(|_| is_over && id == Id::LinkDown);
    let by_count = grouped(by_port.into_iter().map(|((id, port), counts)| {
        let track = port.as_ref().and_then(|port| tracks.iter().find(|track| track.rail.id() == *port));
        ((id, counts.iter().sum::<usize>(), state(id, track)), (port.as_ref(), track))
    }));
    let mut lines = Vec::new();
    for ((id, count, state), ports) in by_count {
        let name = |(port, track): &(Option<&String>, Option<&Track>)| match track {
            Some(track) => Some(track.rail.to_string()),
            None => port.cloned(),
        };
        let names: Vec<String> = ports.iter().filter_map(name).collect();
        let about = match names.len() {
            0 => String::new(),
            1 => format!(" about {}", condensed(&names)),
            _ => format!(" about each of {}", condensed(&names)),
        };
        let were = if count == 1 { "was" } else { "were" };
        let omitted = counted(count, "more line");
        let within = if is_over { " within an hour" } else { "" };
        let now = match (state, names.len()) {
            (None, _) => String::new(),
            (Some(state), 1) => format!("; it {state} now"),
            (Some(state), _) => format!("; each of them {state} now"),
        };
        let message = format!("{omitted}{about} ({id}){within} {were} omitted{now}.");
        lines.push(Finding::info(id, message).about_ports(ports.iter().filter_map(|(port, _)| *port)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_lines_of_a_kind_are_said_in_an_hour() {
        let mut fold = Fold::default();
        let mut said = |seconds, id| {
            let findings = vec![(About::Event, Finding::info(id, "It happened.".to_owned()))];
            let said = fold.pass(Duration::from_secs(seconds), findings, &[]);
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

    /// Both ports go down, the line is omitted, and one of them comes back.
    #[test]
    fn an_omitted_line_that_is_not_true_of_all_of_its_ports_is_said_of_the_others() {
        let mut fold = Fold::default();
        let mut pass = |second, state: &str, ports: &[&str]| {
            let line = |ports: &[&str]| {
                let message = format!("{} {state}.", ports.join(", "));
                let ports = ports.iter().map(|port| format!("{port}:1"));
                Finding::warning(Id::SlowLink, message).about_ports(ports)
            };
            let about = About::State(ports.iter().map(|port| line(&[*port])).collect());
            let lines = if ports.is_empty() { Vec::new() } else { vec![(about, line(ports))] };
            fold.pass(Duration::from_secs(second), lines, &[])
        };
        for second in 0..6 {
            assert_eq!(pass(second, "flap", &["a", "b"]).len(), 1);
        }
        assert!(pass(6, "slow", &["a", "b"]).is_empty());
        let said = pass(40, "fast again", &["a"]);
        assert!(said.is_empty(), "{said:?}");
        let said: Vec<_> = pass(101, "", &[]).into_iter().map(|one| (one.message, one.about.ports)).collect();
        let wanted = [("a fast again.", "a:1"), ("b slow.", "b:1")];
        assert_eq!(said, wanted.map(|(message, port)| (message.to_owned(), vec![port.to_owned()])));
    }

    #[test]
    fn the_ports_of_a_look_are_one_and_notes_leave_room_for_warnings() {
        let mut fold = Fold::default();
        let mut count = |seconds, finding: fn(Id, String) -> Finding| {
            let line = || (About::Event, finding(Id::LinkDown, "It happened.".to_owned()));
            let findings = (0..8).map(|_| line()).collect();
            fold.pass(Duration::from_secs(seconds), findings, &[]).len()
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
            let said = fold.pass(Duration::from_secs(second), vec![(About::Event, finding)], &[]);
            let messages = |all: Vec<Finding>| all.into_iter().map(|one| one.message).collect::<Vec<_>>();
            (messages(said), messages(fold.omitted(&[])))
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
        let mut fold = Fold::default();
        let mut said = |second: u64, ports: &[&str]| {
            let finding = Finding::warning(Id::LinkDown, ports.concat()).about_ports(ports.iter().copied());
            let said = fold.pass(Duration::from_secs(second), vec![(About::Event, finding)], &[]);
            let omitted = fold.omitted(&[]).into_iter().map(|one| one.message).collect::<Vec<_>>();
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

    /// As in a link that has flapped for some time, and then is down for hours.
    #[test]
    fn the_last_line_about_a_port_is_its_state() {
        let mut fold = Fold::default();
        let (down, up) = ("down", "up");
        let mut pass = |second: u64, state: Option<&str>| {
            let line = |state: &str| {
                let finding = if state == down { Finding::warning } else { Finding::info };
                (About::State(Vec::new()), finding(Id::LinkDown, state.to_owned()).about_ports(["mlx5_0:1"]))
            };
            let findings = state.map(line).into_iter().collect();
            let said = fold.pass(Duration::from_secs(second), findings, &[]);
            said.into_iter().map(|one| one.message).collect::<Vec<_>>()
        };
        for flap in 0..6 {
            assert_eq!(pass(20 * flap, Some(down)), [down]);
            assert_eq!(pass(20 * flap + 10, Some(up)), [up]);
        }
        // More of them are hidden only while they last for less than a minute.
        assert!(pass(120, Some(down)).is_empty());
        assert!(pass(130, Some(up)).is_empty());
        assert!(pass(140, Some(down)).is_empty());
        assert!(pass(190, None).is_empty());
        assert_eq!(pass(200, None), [down]);
        assert!(pass(900, None).is_empty());
        assert_eq!(pass(1000, Some(up)), [up]);
        assert_eq!(
            pass(3600, None),
            ["2 more lines about mlx5_0:1 (link-down) within an hour were omitted."]
        );
    }
}
