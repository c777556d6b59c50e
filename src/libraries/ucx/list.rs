//! How UCX reads `UCX_NET_DEVICES` (`ucp_is_resource_in_device_list` in `src/ucp/core/ucp_context.c`;
//! `ucs_config_sscanf_array` and `ucs_config_sscanf_allow_list` in `src/ucs/config/parser.c`).

use super::release::{EXCLUDES_DEVICES, HAS_RANGES, Release};

/// The most entries that UCX reads (`UCS_CONFIG_ARRAY_MAX`).
const MOST: usize = 128;

/// The network devices that a value selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Devices {
    All,
    Only(Vec<String>),
    AllBut(Vec<String>),
}

impl Devices {
    /// Returns whether the value leaves `rc_gda` any of a port's devices. An exclusion would have to name them
    /// for each GPU, so it counts as leaving one.
    pub(super) fn has_gda(&self, port: &str, release: Release) -> bool {
        match self {
            Devices::All | Devices::AllBut(_) => true,
            Devices::Only(list) => list.iter().any(|entry| names_gda(entry, port, release)),
        }
    }

    pub(super) fn read(value: Option<&str>, release: Release) -> Devices {
        let Some(value) = value else { return Devices::All };
        let (excluded, list) = match value.strip_prefix('^') {
            Some(rest) if release >= EXCLUDES_DEVICES => (true, rest),
            _ => (false, value),
        };
        let entries = entries(list, release);
        // Releases that support `^` fail if "all" is one of several entries.
        let all = match release >= EXCLUDES_DEVICES {
            true => entries == ["all"],
            false => entries.iter().any(|entry| entry == "all"),
        };
        match all {
            true => Devices::All,
            false if excluded => Devices::AllBut(entries),
            false => Devices::Only(entries),
        }
    }

    /// Returns whether the value selects a device: `mlx5_0:1`, `eth0`.
    pub(super) fn has(&self, device: &str, release: Release) -> bool {
        let is_it = |entry: &String| names(entry, device, release);
        match self {
            Devices::All => true,
            Devices::Only(list) => list.iter().any(is_it),
            Devices::AllBut(list) => !list.iter().any(is_it),
        }
    }
}

/// Returns whether a list entry names a device.
pub(super) fn names(entry: &str, device: &str, release: Release) -> bool {
    let base = device.split_once(':').map(|(base, _)| base);
    entry == device || release >= EXCLUDES_DEVICES && base == Some(entry)
}

/// Returns whether a list entry names one of a port's devices for `rc_gda`: `cuda0-mlx5_0:1` (see
/// [`super::gda`]).
pub(super) fn names_gda(entry: &str, port: &str, release: Release) -> bool {
    let of_gpu = entry.strip_prefix("cuda").and_then(|rest| rest.split_once('-'));
    of_gpu.is_some_and(|(gpu, entry)| {
        !gpu.is_empty() && gpu.bytes().all(|byte| byte.is_ascii_digit()) && names(entry, port, release)
    })
}

/// Returns the entries of a list, without empty ones.
fn entries(list: &str, release: Release) -> Vec<String> {
    let words = list.split(',').filter(|word| !word.is_empty()).take(MOST);
    let mut all: Vec<String> = Vec::new();
    for word in words {
        match range(word).filter(|_| release >= HAS_RANGES) {
            Some(names) => all.extend(names),
            None => all.push(word.to_owned()),
        }
    }
    all.truncate(MOST);
    all
}

/// Expands a range: `mlx5_[0-3]:1` becomes four names.
fn range(word: &str) -> Option<Vec<String>> {
    let (before, rest) = word.split_once('[')?;
    let (range, after) = rest.split_once(']')?;
    let (first, last) = range.split_once('-')?;
    let number =
        |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let (first, last) = (number(first)?, number(last)?);
    let is_plain = first <= last && ![before, after].iter().any(|text| text.contains(['[', ']']));
    let numbers = first..=last.min(first.saturating_add(MOST as u32));
    is_plain.then(|| numbers.map(|number| format!("{before}{number}{after}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Release = Release(1, 13);
    const NEW: Release = Release(1, 22);

    #[test]
    fn names_are_exact_and_each_release_knows_more() {
        let has = |value: &str, device: &str| {
            [OLD, EXCLUDES_DEVICES, NEW]
                .map(|release| Devices::read(Some(value), release).has(device, release))
        };
        assert_eq!(has("mlx5_0:1,eth0", "mlx5_0:1"), [true; 3]);
        assert_eq!(has("mlx5_0:1,,eth0,", "eth0"), [true; 3]);
        assert_eq!(has("all", "mlx5_1:1"), [true; 3]);
        assert_eq!(has("mlx5_0:1,all", "mlx5_1:1"), [true, false, false]);
        assert_eq!(has("mlx5_1:1", "mlx5_10:1"), [false; 3]);
        assert_eq!(has("mlx5_0", "mlx5_0:1"), [false, true, true], "without its port");
        assert_eq!(has("^mlx5_0:1", "mlx5_1:1"), [false, true, true], "all but");
        assert_eq!(has("^mlx5_0", "mlx5_0:1"), [false; 3]);
        assert_eq!(has("mlx5_[0-3]:1", "mlx5_2:1"), [false, false, true], "a range");
        assert_eq!(has("mlx5_[3-0]:1", "mlx5_2:1"), [false; 3]);
        assert_eq!(has("", "eth0"), [false; 3], "an empty value is a list of none");
        assert_eq!(Devices::read(None, OLD), Devices::All);
    }

    #[test]
    fn a_list_of_ports_leaves_gpus_none_to_start_transfers_on() {
        for (value, wanted) in [
            (None, true),
            (Some("all"), true),
            (Some("^mlx5_1:1"), true),
            (Some("mlx5_0:1,eth0"), false),
            (Some("mlx5_0:1,cuda0-mlx5_0:1"), true),
            (Some("cuda12-mlx5_0"), true),
            (Some("cuda-mlx5_0:1,cudaX-mlx5_0:1,cuda0-mlx5_1:1"), false),
        ] {
            assert_eq!(Devices::read(value, NEW).has_gda("mlx5_0:1", NEW), wanted, "{value:?}");
        }
    }
}
