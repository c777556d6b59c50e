//! What UCX reads in `UCX_TLS` (`ucp_is_resource_in_transports_list` in
//! `src/ucp/core/ucp_context.c`; `ucs_config_sscanf_allow_list` in `src/ucs/config/parser.c`).

use super::release::{EXCLUDES_TRANSPORTS, KEEPS_DATAGRAMS, Release};

/// The transports that a value of `UCX_TLS` allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transports {
    /// Any over InfiniBand and RoCE.
    pub verbs: bool,
    /// One over InfiniBand and RoCE that needs no connection: UD, or DC of mlx5. RC makes its
    /// connections over it (`ucp_tl_aliases` and `UCP_TL_RSC_FLAG_AUX`), or over TCP.
    pub datagrams: bool,
    pub tcp: bool,
}

impl Transports {
    const ALL: Transports = Transports { verbs: true, datagrams: true, tcp: true };
    const NONE: Transports = Transports { verbs: false, datagrams: false, tcp: false };
}

/// All names that stand for a transport over InfiniBand and RoCE; the first stands for all of them.
const VERBS: &[&str] = &[
    "ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ud", "ud_v", "ud_x",
    "ud_verbs", "ud_mlx5", "srd",
];

/// The names of RC that do not stand for the datagrams that it connects with.
const RC_ALONE: &[&str] = &["rc_verbs", "rc_mlx5"];

/// All other names that a release knows, aliases among them (`ucp_tl_aliases`, and the transports of
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
    "rdmacm",
    "sockcm",
    "gaudi",
    "gaudi_gdr",
];

/// What a value of `UCX_TLS` allows; nothing where UCX ends with an error (see [`Unreadable`]).
pub fn transports(value: Option<&str>, release: Release) -> Transports {
    let Some(value) = value else { return Transports::ALL };
    if unreadable(value, release).is_some() {
        return Transports::NONE;
    }
    let (excluded, list) = sign(value, release);
    let words: Vec<&str> = list.split(',').filter(|word| !word.is_empty()).collect();
    let has = |name: &str| words.contains(&name);
    if has("all") {
        return Transports::ALL;
    }
    if excluded {
        let verbs = !has("ib") && !["rc", "dc", "ud"].iter().all(|name| has(name));
        let keeps = release >= KEEPS_DATAGRAMS && !has("ud:aux");
        return Transports { verbs, datagrams: verbs && (keeps || !has("ud")), tcp: !has("tcp") };
    }
    // With ":aux", a transport makes connections and moves nothing.
    let connects = |word: &&str| {
        let word = word.strip_suffix(":aux").unwrap_or(word);
        VERBS.contains(&word) && !RC_ALONE.contains(&word)
    };
    Transports {
        verbs: words.iter().any(|word| VERBS.contains(word)),
        datagrams: words.iter().any(connects),
        tcp: has("tcp"),
    }
}

/// Why UCX ends with an error on a value of `UCX_TLS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It names none: "The TLs list is empty" (`ucp_check_resource_config` in
    /// `src/ucp/core/ucp_context.c`, all releases).
    Empty,
    /// "all" is one of several words (`ucs_config_sscanf_allow_list` in `src/ucs/config/parser.c`).
    AllAndMore,
}

pub fn unreadable(value: &str, release: Release) -> Option<Unreadable> {
    let (_, list) = sign(value, release);
    let mut words = list.split(',').filter(|word| !word.is_empty());
    match (words.next(), words.next()) {
        (None, _) => Some(Unreadable::Empty),
        (Some("all"), Some(_)) if release >= EXCLUDES_TRANSPORTS => Some(Unreadable::AllAndMore),
        _ => None,
    }
}

/// Whether a value of `UCX_TLS` excludes, and its list.
fn sign(value: &str, release: Release) -> (bool, &str) {
    match value.strip_prefix('^') {
        Some(rest) if release >= EXCLUDES_TRANSPORTS => (true, rest),
        _ => (false, value),
    }
}

/// The words of `UCX_TLS` that no release knows.
pub fn unknown_transports(value: &str) -> Vec<&str> {
    let words = value.strip_prefix('^').unwrap_or(value).split(',');
    let is_known = |word: &str| {
        let word = word.split(':').next().unwrap_or_default();
        word.is_empty() || VERBS.contains(&word) || OTHERS.contains(&word)
    };
    words.filter(|word| !is_known(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Release = Release(1, 13);
    const NEW: Release = Release(1, 22);

    fn allowed(value: &str, release: Release) -> [bool; 3] {
        let Transports { verbs, datagrams, tcp } = transports(Some(value), release);
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
    fn a_list_of_none_ends_ucx() {
        for value in ["", ",", "^", "^,"] {
            assert_eq!(unreadable(value, OLD), Some(Unreadable::Empty), "{value}");
            assert_eq!(allowed(value, NEW), [false; 3], "{value}");
        }
        assert_eq!(unreadable("all,rc", NEW), Some(Unreadable::AllAndMore));
        assert_eq!(unreadable("all,rc", Release(1, 10)), None);
        assert!(["all", "^all", "rc,all", ",tcp"].iter().all(|value| unreadable(value, NEW).is_none()));
    }
}
