//! The lists of `NCCL_IB_HCA` and `NCCL_SOCKET_IFNAME` (`src/misc/utils.cc`:
//! `parseStringList`, `matchIfList`).

use super::number::atoi;
use super::version::{REWROTE_PARSERS, TAKES_32_HCAS, Version};

/// `[^][=]name[:port],...`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// `^`: all names except these.
    pub exclude: bool,
    /// `=`: whole names instead of prefixes.
    pub exact: bool,
    pub entries: Vec<Entry>,
    /// Entries beyond NCCL's limit.
    pub dropped: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// `None` for any port.
    pub port: Option<i64>,
    /// The port's rail; `None` if the entry does not contain it or the release does not read it.
    pub rail: Option<i64>,
    /// The port's plane; `None` as for the rail.
    pub plane: Option<i64>,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Returns how many HCAs, and entries of `NCCL_IB_HCA`, a release accepts (`MAX_IB_DEVS`).
pub(crate) fn most_hcas(version: Version) -> usize {
    if version >= TAKES_32_HCAS { 32 } else { 16 }
}

/// How many interfaces, and entries of `NCCL_SOCKET_IFNAME`, NCCL accepts (`MAX_IFS`).
pub(crate) const MOST_INTERFACES: usize = 16;

impl Pattern {
    pub fn of_hcas(text: &str, version: Version) -> Pattern {
        Pattern::parse(text, version, most_hcas(version))
    }

    pub fn of_interfaces(text: &str, version: Version) -> Pattern {
        Pattern::parse(text, version, MOST_INTERFACES)
    }

    /// Never fails, like NCCL: text that it does not understand becomes a name that matches nothing. `^` and
    /// `=` are recognized only once each, in this order, at the very start.
    fn parse(text: &str, version: Version, most: usize) -> Pattern {
        let (exclude, text) = strip(text, '^');
        let (exact, text) = strip(text, '=');
        let mut entries: Vec<Entry> =
            text.split(',').filter_map(|entry| parse_entry(entry, version)).collect();
        let dropped = entries.split_off(most.min(entries.len()));
        Pattern { exclude, exact, entries, dropped }
    }

    /// Returns whether NCCL would use this device. An empty list selects every device; with `^`, it selects
    /// none.
    pub fn selects(&self, name: &str, port: Option<u32>) -> bool {
        let listed = self.entries.is_empty() || self.entries.iter().any(|e| self.matches(e, name, port));
        listed != self.exclude
    }

    /// Returns the first entry that matches a port: its rail and its plane are the port's.
    pub fn entry(&self, name: &str, port: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| self.matches(entry, name, Some(port)))
    }

    /// Returns whether an entry of this list matches this device.
    pub fn matches(&self, entry: &Entry, name: &str, port: Option<u32>) -> bool {
        let same_name = if self.exact { name == entry.name } else { name.starts_with(&entry.name) };
        same_name
            && match (entry.port, port) {
                (Some(wanted), Some(port)) => wanted == i64::from(port) || wanted == -1,
                _ => true,
            }
    }
}

fn strip(text: &str, sign: char) -> (bool, &str) {
    text.strip_prefix(sign).map_or((false, text), |rest| (true, rest))
}

/// Parses `name[:port]`; since 2.30 `name[:port[:rail[:plane]]]`, where the port may also be empty.
fn parse_entry(entry: &str, version: Version) -> Option<Entry> {
    let mut fields = entry.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
    let port = match fields.next() {
        Some("") if version >= REWROTE_PARSERS => None,
        Some(port) => Some(atoi(port)),
        None => None,
    };
    // -1 means none (`NCCL_NET_ID_UNDEF`).
    let mut number = || {
        let field = fields.next().filter(|field| !field.is_empty() && version >= REWROTE_PARSERS);
        field.map(atoi).filter(|number| *number != -1)
    };
    let (rail, plane) = (number(), number());
    Some(Entry { name, port, rail, plane })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::version::NEWEST;

    fn select(pattern: &str, names: &[&'static str]) -> Vec<&'static str> {
        let pattern = Pattern::of_hcas(pattern, NEWEST);
        names.iter().copied().filter(|name| pattern.selects(name, Some(1))).collect()
    }

    #[test]
    fn patterns_select_what_nccl_selects() {
        let all = ["mlx5_0", "mlx5_1", "mlx5_10"];
        assert_eq!(select("mlx5_1", &all), ["mlx5_1", "mlx5_10"]);
        assert_eq!(select("=mlx5_1", &all), ["mlx5_1"]);
        assert_eq!(select("^mlx5_0", &all), ["mlx5_1", "mlx5_10"]);
        assert_eq!(select("^=mlx5_1", &all), ["mlx5_0", "mlx5_10"]);
        assert_eq!(select("", &all), all);
        assert_eq!(select("=", &all), all);
        assert_eq!(select("^", &all), [""; 0]);
        // The space becomes part of the name, and `;` is not a separator.
        assert_eq!(select("=mlx5_0, mlx5_1", &all), ["mlx5_0"]);
        assert_eq!(select("=mlx5_0;mlx5_1", &all), [""; 0]);
        // The second sign becomes part of the name.
        assert_eq!(select("^=mlx5_0,^=mlx5_1", &all), ["mlx5_1", "mlx5_10"]);
        assert_eq!(select("=mlx5_0:1,mlx5_1:2", &all), ["mlx5_0"]);
        assert_eq!(select(",,mlx5_0,", &all), ["mlx5_0"]);
    }

    #[test]
    fn ports_and_the_number_of_entries_depend_on_the_release() {
        let old = Version::new(2, 18, 3);
        let port = |text, version| Pattern::of_hcas(text, version).entries[0].port;
        assert_eq!((port("a:", old), port("a:", NEWEST)), (Some(0), None));
        assert_eq!((port("a:1:7:3", old), port("a:1:7:3", NEWEST)), (Some(1), Some(1)));
        let many: Vec<String> = (0..40).map(|number| format!("mlx5_{number}")).collect();
        let entries = |version| Pattern::of_hcas(&many.join(","), version).entries.len();
        assert_eq!((entries(old), entries(NEWEST)), (16, 32));
        assert_eq!(Pattern::of_hcas(&many.join(","), old).dropped.len(), 24);
    }
}
