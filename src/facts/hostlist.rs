//! Host lists in Slurm's format, such as `node[07-09,12],login1`. Pure.
//!
//! The grammar is that of `hostlist(3)` in Slurm (`src/common/hostlist.c`, 25.05): names separated by commas;
//! numbers and ranges in brackets, where the first number of a range sets the minimum number of digits; a
//! name may have several pairs of brackets.

/// The most hosts in a list. A fuzzer would spend its time on the longest ones.
const MOST: usize = if cfg!(fuzzing) { 512 } else { 65_536 };

/// In bytes: no host has a longer name (RFC 1035). A variable has room for a name that would fill the memory if it
/// were there 65,536 times, for more brackets than fit on the stack, and for a number with more digits than a
/// format allows.
const LONGEST: usize = 255;

/// Returns the hosts of a list; `None` if it is malformed or too long.
pub(crate) fn expand(list: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for name in names(list)? {
        expand_name(name, String::new(), &mut all)?;
    }
    Some(all)
}

/// Splits a list into its names, with their brackets.
fn names(list: &str) -> Option<Vec<&str>> {
    let (mut start, mut inside, mut names) = (0, false, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return None,
            ',' if !inside => {
                names.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    names.push(&list[start..]);
    names.retain(|name| !name.is_empty());
    (!inside && !names.is_empty()).then_some(names)
}

fn expand_name(rest: &str, before: String, all: &mut Vec<String>) -> Option<()> {
    let Some((stem, more)) = rest.split_once('[') else {
        if all.len() >= MOST || before.len() + rest.len() > LONGEST {
            return None;
        }
        all.push(before + rest);
        return Some(());
    };
    let (ranges, after) = more.split_once(']')?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<usize>().ok().filter(|_| is_number)
        };
        let (from, to) = (number(first)?, number(last)?);
        let is_too_long = before.len() + stem.len() + first.len() > LONGEST;
        if to < from || to - from >= MOST || is_too_long {
            return None;
        }
        for number in from..=to {
            expand_name(after, format!("{before}{stem}{number:0width$}", width = first.len()), all)?;
        }
    }
    Some(())
}

/// Formats the hosts as one list. Names that differ only in their trailing number share a pair of brackets,
/// at the position of the first such name.
pub(crate) fn compress<T: AsRef<str>>(hosts: &[T]) -> String {
    let mut groups: indexmap::IndexMap<&str, Vec<&str>> = indexmap::IndexMap::new();
    for host in hosts.iter().map(AsRef::as_ref) {
        let (stem, number) = split(host);
        groups.entry(stem).or_default().push(number);
    }
    let names: Vec<String> = groups
        .into_iter()
        .flat_map(|(stem, mut numbers)| {
            // A name without a number goes into no brackets.
            let alone = numbers.iter().position(|number| number.is_empty());
            numbers.retain(|number| !number.is_empty());
            let alone = alone.map(|_| stem.to_owned());
            let together = match numbers.as_slice() {
                [] => None,
                [one] => Some(format!("{stem}{one}")),
                _ => Some(format!("{stem}[{}]", ranges(numbers))),
            };
            alone.into_iter().chain(together)
        })
        .collect();
    names.join(",")
}

/// Splits off the number at the end, if a range can contain it.
fn split(host: &str) -> (&str, &str) {
    let digits = host.bytes().rev().take_while(u8::is_ascii_digit).count();
    if digits > 18 { (host, "") } else { host.split_at(host.len() - digits) }
}

fn ranges(mut numbers: Vec<&str>) -> String {
    let value = |text: &str| text.parse::<u64>().unwrap_or_default();
    numbers.sort_by_key(|text| (value(text), text.len()));
    numbers.dedup();
    let mut runs: Vec<(&str, &str)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            // A range has one width: `08-10` is fine, and so is `8-10`, but `9-010` is not.
            Some((first, last)) if value(last) + 1 == value(number) && is_wide(number, first.len()) => {
                *last = number;
            }
            _ => runs.push((number, number)),
        }
    }
    let runs: Vec<String> = runs
        .iter()
        .map(|(first, last)| if first == last { (*first).to_owned() } else { format!("{first}-{last}") })
        .collect();
    runs.join(",")
}

/// Returns whether a range with this minimum number of digits would write the number like this.
fn is_wide(number: &str, width: usize) -> bool {
    number.len() == width || number.len() > width && !number.starts_with('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_as_slurm_does() {
        let of = |list: &str| expand(list).map(|hosts| hosts.join(" "));
        for (list, hosts) in [
            ("node1", "node1"),
            ("node[1-3]", "node1 node2 node3"),
            ("node[07-10,12]", "node07 node08 node09 node10 node12"),
            ("node[99-101]", "node99 node100 node101"),
            ("a[1-2],login,b[3]", "a1 a2 login b3"),
            ("rack[0-1]n[1-2]-ib", "rack0n1-ib rack0n2-ib rack1n1-ib rack1n2-ib"),
            ("a,,b,", "a b"),
        ] {
            assert_eq!(of(list).as_deref(), Some(hosts), "{list}");
        }
        for list in [
            "",
            "node[1-3",
            "node1]",
            "node[[1]]",
            "node[3-1]",
            "node[a]",
            "node[]",
            "n[+1]",
            "n[1-99999999]",
        ] {
            assert_eq!(of(list), None, "{list}");
        }
        assert_eq!(expand("n[0-255]m[0-255]").map(|hosts| hosts.len()), Some(65_536));
        assert_eq!(expand("n[0-256]m[0-255]"), None);
    }

    #[test]
    fn a_list_with_a_name_that_is_too_long_for_a_host_is_malformed() {
        let (long, longest) = ("n".repeat(256), "n".repeat(255));
        assert_eq!(expand(&longest).map(|hosts| hosts.len()), Some(1));
        assert!(expand(&long).is_none());
        assert!(expand(&format!("{longest}[1-65536]")).is_none());
        assert!(expand(&format!("n[{}1]", "0".repeat(70_000))).is_none());
        assert!(expand(&"[1]".repeat(43_000)).is_none());
    }

    #[test]
    fn hosts_are_compressed() {
        for (hosts, list) in [
            (vec!["node07", "node08", "node09", "node12"], "node[07-09,12]"),
            (vec!["node12", "login", "node7"], "node[7,12],login"),
            (vec!["node9", "node10", "node11"], "node[9-11]"),
            (vec!["node09", "node10"], "node[09-10]"),
            (vec!["node9", "node010"], "node[9,010]"),
            (vec!["node", "node1"], "node,node1"),
            (vec!["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
            (vec!["a5"], "a5"),
            (vec![], ""),
        ] {
            assert_eq!(compress(&hosts), list);
        }
    }

    #[test]
    fn what_is_compressed_is_expanded_to_the_same() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut hosts: Vec<String> = (0..random.usize(1..40))
                .map(|_| {
                    let number = random.u32(0..120);
                    match random.u32(0..4) {
                        0 => format!("a{number}"),
                        1 => format!("a{number:03}"),
                        2 => format!("rack{}-n{number:02}", random.u32(0..3)),
                        _ => format!("n{number}x"),
                    }
                })
                .collect();
            let list = compress(&hosts);
            let mut expanded = expand(&list).unwrap();
            hosts.sort();
            hosts.dedup();
            expanded.sort();
            assert_eq!(expanded, hosts, "{list}");
        }
    }
}
