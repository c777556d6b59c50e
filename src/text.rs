//! Small text functions that several reports share.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Duration;

/// The widest column of a table, in characters. A longer cell pushes the rest of its line; the standard library refuses
/// widths above 65,535, and a name from outside may be longer.
pub(crate) const WIDEST: usize = 120;

/// The path of this program, if a person in this container cannot start it by its name, and its commands.
static PROGRAM: OnceLock<(String, &[&str])> = OnceLock::new();

/// Makes [`name_program`] name the program by this path from now on.
pub(crate) fn set_program(path: String, commands: &'static [&'static str]) {
    let path = if path.contains(' ') { format!("'{path}'") } else { path };
    let _ = PROGRAM.set((path, commands));
}

/// Names the program by its path where a text for a person has a command line of it, such as `rdma-init plan`, so that
/// the line can be pasted. Everything that prints a fix or a message calls this once.
pub(crate) fn name_program(text: &str) -> Cow<'_, str> {
    match PROGRAM.get() {
        Some((path, commands)) => name_program_by(path, commands, text).into(),
        None => text.into(),
    }
}

fn name_program_by(path: &str, commands: &[&str], text: &str) -> String {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let mut parts = text.split("rdma-init ");
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let word = part.split(|c| !is_of_word(c)).next().unwrap_or_default().trim_end_matches('.');
        let is_command = (commands.contains(&word) || word.starts_with("--")) && !named.ends_with(is_of_word);
        named.push_str(if is_command { path } else { "rdma-init" });
        named.push(' ');
        named.push_str(part);
    }
    named
}

/// Returns `mlx5_1..mlx5_8` for consecutively numbered names, otherwise the names separated by commas. Port
/// names, such as `mlx5_1:1`, are numbered by their HCA.
pub(crate) fn condensed<T: AsRef<str>>(names: &[T]) -> String {
    condensed_to(names, usize::MAX)
}

/// Returns the names grouped by key, in the order of each group's first name.
pub(crate) fn grouped<K: PartialEq, V>(said: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (what, name) in said {
        match groups.iter_mut().find(|(known, _)| *known == what) {
            Some((_, names)) => names.push(name),
            None => groups.push((what, vec![name])),
        }
    }
    groups
}

/// Does the same as [`condensed`] with at most this many runs: `node001..node032 and 5 more`.
pub(crate) fn condensed_to<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let mut runs: Vec<NameRun> = Vec::new();
    let mut named = 0;
    for name in names.iter().map(AsRef::as_ref) {
        let goes_on = runs.last_mut().is_some_and(|run| run.takes(name));
        if !goes_on {
            if runs.len() == most {
                break;
            }
            runs.push(NameRun { first: name, last: name, length: 1, what: None });
        }
        named += 1;
    }
    let shown: Vec<String> = runs
        .iter()
        .map(|NameRun { first, last, length, .. }| match length {
            1 => (*first).to_owned(),
            2 => format!("{first}, {last}"),
            _ => format!("{first}..{last}"),
        })
        .collect();
    let more = match names.len() - named {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown.join(", ") + &more
}

/// Consecutively numbered names.
struct NameRun<'a> {
    first: &'a str,
    last: &'a str,
    length: usize,
    /// Which number increases; it is known from the second name on.
    what: Option<CountingNumber>,
}

/// The number in a name that increases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountingNumber {
    Last,
    /// The last number before the port number.
    BeforePort,
}

impl<'a> NameRun<'a> {
    /// Returns whether the name continues the run, and adds it if so.
    fn takes(&mut self, name: &'a str) -> bool {
        let counts = [CountingNumber::Last, CountingNumber::BeforePort]
            .into_iter()
            .find(|what| follows(self.last, name, *what));
        let goes_on = counts.is_some() && self.what.is_none_or(|what| counts == Some(what));
        if goes_on {
            (self.last, self.length, self.what) = (name, self.length + 1, counts);
        }
        goes_on
    }
}

fn follows(first: &str, second: &str, what: CountingNumber) -> bool {
    let split = |name| -> Option<(&str, u64, &str)> {
        let (name, port) = match what {
            CountingNumber::Last => (name, ""),
            CountingNumber::BeforePort => without_port(name)?,
        };
        let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, number) = name.split_at(digits);
        Some((stem, number.parse().ok()?, port))
    };
    match (split(first), split(second)) {
        (Some((stem_a, a, port_a)), Some((stem_b, b, port_b))) => {
            stem_a == stem_b && port_a == port_b && a.checked_add(1) == Some(b)
        }
        _ => false,
    }
}

/// Splits `mlx5_1:1` into `mlx5_1` and `:1`.
fn without_port(name: &str) -> Option<(&str, &str)> {
    let (hca, port) = name.rsplit_once(':')?;
    port.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.split_at(hca.len()))
}

/// Returns `mlx5_1:1..mlx5_8:1 (eth1..eth8)` if both ports and interfaces are consecutively numbered,
/// otherwise each port with its interface.
pub(crate) fn paired<P: AsRef<str>, I: AsRef<str>>(pairs: &[(P, I)]) -> String {
    let (ports, interfaces): (Vec<&str>, Vec<&str>) =
        pairs.iter().map(|(port, interface)| (port.as_ref(), interface.as_ref())).unzip();
    let [ports, interfaces] = [condensed(&ports), condensed(&interfaces)];
    match pairs.len() > 2 && !ports.contains(',') && !interfaces.contains(',') {
        true => format!("{ports} ({interfaces})"),
        false => {
            let each =
                pairs.iter().map(|(port, interface)| format!("{} ({})", port.as_ref(), interface.as_ref()));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns a time as text, rounded to seconds from ten seconds on, to milliseconds below, and to microseconds
/// below one millisecond.
pub(crate) fn duration(time: Duration) -> String {
    let rounded = if time < Duration::from_millis(1) {
        Duration::from_micros(time.as_micros().try_into().unwrap_or_default())
    } else if time.as_secs() >= 10 {
        Duration::from_secs(time.as_secs())
    } else {
        Duration::from_millis(time.as_millis().try_into().unwrap_or_default())
    };
    humantime::format_duration(rounded).to_string()
}

/// Returns a time between two looks as text: they are seconds apart, so parts of a second mean nothing.
pub(crate) fn coarse(time: Duration) -> String {
    if time < Duration::from_secs(1) { duration(time) } else { duration(Duration::from_secs(time.as_secs())) }
}

/// Returns the time of day, in UTC, so long after 1970: `14:03:50`.
pub(crate) fn time_of_day(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs() % (24 * 3600);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns a time as text: `850 us`, `3.4 ms`, `12 ms`, `2.1 s`.
pub(crate) fn microseconds(time: u64) -> String {
    match time {
        0..1000 => format!("{time} us"),
        1000..10_000 => format!("{}.{} ms", time / 1000, time / 100 % 10),
        10_000..1_000_000 => format!("{} ms", time / 1000),
        _ => format!("{}.{} s", time / 1_000_000, time / 100_000 % 10),
    }
}

/// `64 KiB`, `8 MiB`, `1.5 GiB`, `4.1 TiB`.
pub(crate) fn amount(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (size, unit) in units {
        if bytes >= size {
            let tenths = u128::from(bytes) * 10 / u128::from(size);
            return if bytes.is_multiple_of(size) {
                format!("{} {unit}", bytes / size)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{bytes} bytes")
}

/// Returns as much of a text's start as a report line needs.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    const MOST: usize = 300;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => Cow::Owned(format!("{}... ({} bytes)", &text[..end], text.len())),
        None => Cow::Borrowed(text),
    }
}

/// Returns a number with its noun: `1 port`, `8 ports`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Returns the text with the full stop that ends a sentence.
pub(crate) fn sentence(text: &str) -> String {
    match text.ends_with(['.', '?', '!']) {
        true => text.to_owned(),
        false => format!("{text}."),
    }
}

/// Returns text from a file or from the user without characters that would move the cursor or imitate a line
/// of rdma-init's. A carriage return, which files from Windows have, becomes `\r`.
pub(crate) fn visible(text: &str) -> String {
    let is_bad = |c: char| c.is_control() || turns(c);
    let shown = text.replace('\r', "\\r");
    shown.chars().map(|c| if is_bad(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Returns whether this character changes the direction of the following text, or starts another line.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted() {
        let named = |text| name_program_by("/opt/rdma-init", &["plan", "status", "self-test"], text);
        for (text, shown) in [
            ("Run rdma-init plan on gpu-1.", "Run /opt/rdma-init plan on gpu-1."),
            (
                "`rdma-init status --ras`; rdma-init self-test.",
                "`/opt/rdma-init status --ras`; /opt/rdma-init self-test.",
            ),
            ("IMAGE /rdma-init plan; rdma-init planned it", "IMAGE /rdma-init plan; rdma-init planned it"),
            ("see rdma-init --help; rdma-init -- sh", "see /opt/rdma-init --help; /opt/rdma-init -- sh"),
            ("rdma-init ", "rdma-init "),
        ] {
            assert_eq!(named(text), shown);
        }
        assert_eq!(name_program("Run rdma-init plan."), "Run rdma-init plan.");
    }

    #[test]
    fn names_that_count_up_are_condensed() {
        assert_eq!(condensed(&["mlx5_1", "mlx5_2", "mlx5_3", "mlx5_5"]), "mlx5_1..mlx5_3, mlx5_5");
        assert_eq!(condensed(&["erdma_0", "erdma_1"]), "erdma_0, erdma_1");
        assert_eq!(condensed(&["mlx5_9", "mlx5_10", "mlx5_11"]), "mlx5_9..mlx5_11");
        assert_eq!(condensed(&["ibp1s0", "rocep"]), "ibp1s0, rocep");
        assert_eq!(condensed::<&str>(&[]), "");
        assert_eq!(condensed(&["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]), "mlx5_0:1..mlx5_2:1");
        assert_eq!(condensed(&["mlx5_0:1", "mlx5_0:2", "mlx5_1:2"]), "mlx5_0:1, mlx5_0:2, mlx5_1:2");
        assert_eq!(
            condensed(&["mlx5_1:2", "mlx5_1:3", "mlx5_1:4", "mlx5_2:4"]),
            "mlx5_1:2..mlx5_1:4, mlx5_2:4"
        );
        assert_eq!(condensed(&["a:", ":", ":1", "1:1"]), "a:, :, :1, 1:1");
    }

    #[test]
    fn ports_are_condensed_with_their_interfaces() {
        let three = [("mlx5_1:1", "eth1"), ("mlx5_2:1", "eth2"), ("mlx5_3:1", "eth3")];
        assert_eq!(paired(&three), "mlx5_1:1..mlx5_3:1 (eth1..eth3)");
        assert_eq!(paired(&three[1..]), "mlx5_2:1 (eth2), mlx5_3:1 (eth3)");
        let gap = [three[0], three[2], ("mlx5_4:1", "eth4")];
        assert_eq!(paired(&gap), "mlx5_1:1 (eth1), mlx5_3:1 (eth3), mlx5_4:1 (eth4)");
    }

    #[test]
    fn names_that_do_not_fit_are_counted() {
        let names = ["a1", "a2", "a3", "b", "c1", "c2"];
        assert_eq!(condensed_to(&names, 2), "a1..a3, b and 2 more");
        assert_eq!(condensed_to(&names, 3), "a1..a3, b, c1, c2");
    }

    #[test]
    fn times_have_two_digits_that_count() {
        let said = [850, 1000, 3456, 9999, 12_345, 999_999, 2_150_000].map(microseconds);
        assert_eq!(said, ["850 us", "1.0 ms", "3.4 ms", "9.9 ms", "12 ms", "999 ms", "2.1 s"]);
    }

    #[test]
    fn amounts_are_shown_in_the_largest_unit() {
        assert_eq!(amount(65536), "64 KiB");
        assert_eq!(amount(8 << 20), "8 MiB");
        assert_eq!(amount(3 << 29), "1.5 GiB");
        assert_eq!(amount(100), "100 bytes");
        assert_eq!(amount(1_048_575), "1023.9 KiB");
    }
}
