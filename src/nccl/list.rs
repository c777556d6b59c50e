//! The patterns of `NCCL_IB_HCA` and `NCCL_SOCKET_IFNAME` (`src/misc/socket.cc`
//! and `src/misc/utils.cc`: `parseStringList`, `matchIfList`).

/// `[^][=]name[:port],...`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// `^`: everything but these.
    pub exclude: bool,
    /// `=`: whole names instead of prefixes.
    pub exact: bool,
    pub entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// `None` for any port.
    pub port: Option<i64>,
}

impl Pattern {
    /// Never fails, like NCCL: what it does not understand becomes a name that
    /// matches nothing. `^` and `=` count once each, in this order, at the very
    /// start.
    pub fn parse(text: &str) -> Pattern {
        let (exclude, text) = strip(text, '^');
        let (exact, text) = strip(text, '=');
        let entries = text
            .split(',')
            .filter_map(|entry| {
                let (name, port) = match entry.split_once(':') {
                    Some((name, port)) => (name, Some(super::number::atoi(port))),
                    None => (entry, None),
                };
                (!name.is_empty()).then(|| Entry { name: name.to_owned(), port })
            })
            .collect();
        Pattern { exclude, exact, entries }
    }

    /// Whether NCCL would take this device. An empty list takes everything, and
    /// `^` turns that into nothing.
    pub fn selects(&self, name: &str, port: Option<u32>) -> bool {
        let listed = self.entries.is_empty() || self.entries.iter().any(|e| self.matches(e, name, port));
        listed != self.exclude
    }

    fn matches(&self, entry: &Entry, name: &str, port: Option<u32>) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn select(pattern: &str, names: &[&'static str]) -> Vec<&'static str> {
        let pattern = Pattern::parse(pattern);
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
        // The space becomes part of the name, and `;` is no separator.
        assert_eq!(select("=mlx5_0, mlx5_1", &all), ["mlx5_0"]);
        assert_eq!(select("=mlx5_0;mlx5_1", &all), [""; 0]);
        // The second sign becomes part of a name.
        assert_eq!(select("^=mlx5_0,^=mlx5_1", &all), ["mlx5_1", "mlx5_10"]);
        assert_eq!(select("=mlx5_0:1,mlx5_1:2", &all), ["mlx5_0"]);
        assert_eq!(select(",,mlx5_0,", &all), ["mlx5_0"]);
    }
}
