//! How UCX reads `UCX_TLS` (`ucp_is_resource_in_transports_list` in `src/ucp/core/ucp_context.c`;
//! `ucs_config_sscanf_allow_list` in `src/ucs/config/parser.c`).

use super::release::{EXCLUDES_DEVICES, EXCLUDES_TRANSPORTS, KEEPS_DATAGRAMS, NEWEST, Release};

/// The transports that a value of `UCX_TLS` allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transports {
    /// Any transport over InfiniBand and RoCE.
    pub verbs: bool,
    /// A connectionless transport over InfiniBand and RoCE: UD, or mlx5's DC. RC connects through it
    /// (`ucp_tl_aliases` and `UCP_TL_RSC_FLAG_AUX`) or through TCP.
    pub datagrams: bool,
    pub tcp: bool,
    /// Any transport within a node: shared memory, self, GPUs.
    pub within: bool,
    /// `rc_gda` ([`super::gda`]).
    pub gda: bool,
}

impl Transports {
    const ALL: Transports = Transports { verbs: true, datagrams: true, tcp: true, within: true, gda: true };
    const NONE: Transports =
        Transports { verbs: false, datagrams: false, tcp: false, within: false, gda: false };
}

/// All names of transports over InfiniBand and RoCE; the first stands for all of them.
const VERBS: &[&str] = &[
    "ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ud", "ud_v", "ud_x",
    "ud_verbs", "ud_mlx5", "srd",
];

/// The names of RC that do not include the datagrams through which it connects.
const RC_ALONE: &[&str] = &["rc_verbs", "rc_mlx5"];

/// All other names that a release recognizes, including aliases (`ucp_tl_aliases`, and the transports of
/// `src/uct`).
const OTHERS: &[&str] = &[
    "all",
    "mm",
    "sm",
    "shm",
    "posix",
    "sysv",
    "xpmem",
    "knem",
    "cma",
    "self",
    "tcp",
    "cuda",
    "cuda_copy",
    "cuda_ipc",
    "gdr_copy",
    "rocm",
    "rocm_copy",
    "rocm_ipc",
    "rocm_gdr",
    "ze",
    "ze_copy",
    "ze_ipc",
    "ze_gdr",
    "ugni",
    "ugni_smsg",
    "ugni_udt",
    "ugni_rdma",
    "gga",
    "gga_mlx5",
    "gaudi",
    "gaudi_gdr",
    "rc_gda",
    "rc_gdp",
];

/// Recognized names of transports that move no data but make connections by address
/// (`UCP_TL_RSC_FLAG_SOCKADDR`).
const CONNECTION_MANAGERS: &[&str] = &["rdmacm", "sockcm"];

/// Returns what a value of `UCX_TLS` allows; no transports if UCX fails (see [`TlsError`]).
pub(crate) fn transports(value: Option<&str>, release: Release) -> Transports {
    let Some(value) = value else { return Transports::ALL };
    if unreadable(value, release).is_some() {
        return Transports::NONE;
    }
    let (excluded, list) = sign(value, release);
    let words = words(list);
    let has = |name: &str| words.contains(&name);
    if has("all") {
        return Transports::ALL;
    }
    let names_gda = has("rc_gda") || has("ib") && release >= EXCLUDES_DEVICES;
    if excluded {
        let verbs = !has("ib") && !["rc", "dc", "ud"].iter().all(|name| has(name));
        let keeps = release >= KEEPS_DATAGRAMS && !has("ud:aux");
        let datagrams = verbs && (keeps || !has("ud"));
        return Transports { verbs, datagrams, tcp: !has("tcp"), within: true, gda: !names_gda };
    }
    // With ":aux", a transport only makes connections and moves no data.
    let connects = |word: &&str| {
        let word = word.strip_suffix(":aux").unwrap_or(word);
        VERBS.contains(&word) && !RC_ALONE.contains(&word)
    };
    Transports {
        verbs: words.iter().any(|word| VERBS.contains(word)),
        datagrams: words.iter().any(connects),
        tcp: has("tcp"),
        within: words.iter().any(|word| OTHERS.contains(word) && *word != "tcp"),
        gda: names_gda,
    }
}

/// Returns the words of a list, without the sign that marks a word as a transport's name instead of an alias
/// (`ucp_config_is_tl_name_present`). UCX expects lower case and does not trim spaces.
fn words(list: &str) -> Vec<&str> {
    let is_name = |word: &&str| ["_verbs", "_mlx5", "_copy", "_ipc"].iter().any(|end| word.ends_with(end));
    let plain = |word| str::strip_prefix(word, '\\').filter(is_name).unwrap_or(word);
    list.split(',').filter(|word| !word.is_empty()).map(plain).collect()
}

/// Why UCX fails on a value of `UCX_TLS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsError {
    /// The value is empty: "The TLs list is empty" (`ucp_check_resource_config` in
    /// `src/ucp/core/ucp_context.c`, all releases).
    Empty,
    /// "all" is one of several words (`ucs_config_sscanf_allow_list` in `src/ucs/config/parser.c`).
    AllWithOthers,
    /// The value names no transport that moves data: "no usable transports/devices" (`ucp_check_resources` in
    /// `src/ucp/core/ucp_context.c`, all releases).
    NoneKnown,
}

pub(crate) fn unreadable(value: &str, release: Release) -> Option<TlsError> {
    let (excluded, list) = sign(value, release);
    let words = words(list);
    let moves = |word: &&str| VERBS.contains(word) || OTHERS.contains(word);
    match words.as_slice() {
        [] => Some(TlsError::Empty),
        ["all", _, ..] if release >= EXCLUDES_TRANSPORTS => Some(TlsError::AllWithOthers),
        words if !excluded && !words.iter().any(moves) => Some(TlsError::NoneKnown),
        _ => None,
    }
}

/// Returns whether a value of `UCX_TLS` excludes its list, and the list.
fn sign(value: &str, release: Release) -> (bool, &str) {
    match value.strip_prefix('^') {
        Some(rest) if release >= EXCLUDES_TRANSPORTS => (true, rest),
        _ => (false, value),
    }
}

/// Returns the words of `UCX_TLS` that no release recognizes.
pub(crate) fn unknown_transports(value: &str) -> Vec<&str> {
    let words = words(value.strip_prefix('^').unwrap_or(value));
    let is_known = |word: &str| {
        let word = word.split(':').next().unwrap_or_default();
        [VERBS, OTHERS, CONNECTION_MANAGERS].iter().any(|names| names.contains(&word))
    };
    words.into_iter().filter(|word| !is_known(word)).collect()
}

/// Returns the same list in lower case and with commas, if UCX recognizes each of its words.
pub(crate) fn respelt(value: &str) -> Option<String> {
    let (sign, list) = match value.trim().strip_prefix('^') {
        Some(rest) => ("^", rest),
        None => ("", value.trim()),
    };
    let lower = list.to_ascii_lowercase();
    let is_between = |c: char| c.is_whitespace() || [',', ';', '|', '+'].contains(&c);
    let words: Vec<&str> = lower.split(is_between).filter(|word| !word.is_empty()).collect();
    let respelt = format!("{sign}{}", words.join(","));
    let is_readable = unreadable(&respelt, NEWEST).is_none() && unknown_transports(&respelt).is_empty();
    (is_readable && respelt != value).then_some(respelt)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Release = Release(1, 13);
    const NEW: Release = Release(1, 22);

    fn allowed(value: &str, release: Release) -> [bool; 3] {
        let Transports { verbs, datagrams, tcp, .. } = transports(Some(value), release);
        [verbs, datagrams, tcp]
    }

    #[test]
    fn transports_are_named_by_aliases_too() {
        for (value, wanted) in [
            ("all", [true, true, true]),
            ("tcp", [false, false, true]),
            ("tcp,self,sm,cuda_copy", [false, false, true]),
            ("rc,cuda_copy", [true, true, false]),
            ("rc_x,tcp", [true, true, true]),
            ("rc_verbs,self", [true, false, false]),
            ("rc_mlx5,ud_mlx5:aux", [true, true, false]),
            ("ud_verbs:aux,tcp", [false, true, true]),
            ("dc_mlx5,cuda", [true, true, false]),
            ("^tcp", [true, true, false]),
            ("^ib", [false, false, true]),
            ("^rc", [true, true, true]),
            ("^rc,dc,ud", [false, false, true]),
            ("^all", [true, true, true]),
        ] {
            assert_eq!(allowed(value, OLD), wanted, "{value}");
        }
        assert_eq!([OLD, NEW].map(|release| allowed("^ud", release)[1]), [false, true]);
        assert_eq!(unknown_transports("rc,ib_verbs,TCP,sm,ud:aux"), ["ib_verbs", "TCP"]);
    }

    #[test]
    fn gpus_start_transfers_only_if_the_list_allows_it() {
        for (value, wanted) in [
            (None, [true, true]),
            (Some("all"), [true, true]),
            (Some("rc,cuda"), [false, false]),
            (Some("rc_gda,rc"), [true, true]),
            (Some("^rc_gda"), [false, false]),
            (Some("^cuda_ipc"), [true, true]),
            (Some("ib"), [false, true]),
            (Some("^ib"), [true, false]),
        ] {
            let gda = [Release(1, 20), NEW].map(|release| transports(value, release).gda);
            assert_eq!(gda, wanted, "{value:?}");
        }
        assert_eq!(unknown_transports("^rc_gda"), [""; 0]);
    }

    #[test]
    fn words_count_as_they_are_and_a_list_without_any_ends_ucx() {
        let all = [Release(1, 10), OLD, Release(1, 18), Release(1, 20), NEW];
        for value in ["RC", "rc;tcp", "TCP", "tcp ", "rc tcp", "ud_verbs:aux", "rdmacm", "\\rc", "infiniband"]
        {
            let ends = all.map(|release| unreadable(value, release));
            assert_eq!(ends, [Some(TlsError::NoneKnown); 5], "{value}");
            assert_eq!(allowed(value, NEW), [false; 3], "{value}");
        }
        for value in ["RC,self", "sm", "tcp;rc,tcp", "\\rc_verbs", "cuda_copy", "shm,rc"] {
            assert_eq!(all.map(|release| unreadable(value, release)), [None; 5], "{value}");
        }
        // In earlier releases, "^" was part of the name.
        assert_eq!(unreadable("^tcp", Release(1, 10)), Some(TlsError::NoneKnown));
        assert!(transports(Some("RC,self"), NEW).within && !transports(Some("rc,tcp"), NEW).within);
    }

    #[test]
    fn a_list_is_respelled_if_ucx_knows_its_words() {
        for (value, wanted) in [
            ("RC", Some("rc")),
            ("rc;tcp", Some("rc,tcp")),
            (" rc, TCP ", Some("rc,tcp")),
            ("^IB", Some("^ib")),
            ("rc,tcp", None),
            ("infiniband", None),
            ("", None),
        ] {
            assert_eq!(respelt(value).as_deref(), wanted, "{value}");
        }
    }

    #[test]
    fn ucx_fails_on_an_empty_list_of_transports() {
        for value in ["", ",", "^", "^,"] {
            assert_eq!(unreadable(value, OLD), Some(TlsError::Empty), "{value}");
            assert_eq!(allowed(value, NEW), [false; 3], "{value}");
        }
        assert_eq!(unreadable("all,rc", NEW), Some(TlsError::AllWithOthers));
        assert_eq!(unreadable("all,rc", Release(1, 10)), None);
        assert!(["all", "^all", "rc,all", ",tcp"].iter().all(|value| unreadable(value, NEW).is_none()));
    }
}
