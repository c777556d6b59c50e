//! Gloo, as built into PyTorch. `GLOO_SOCKET_IFNAME` is a list of exact names; each becomes a separate device
//! (`torch/csrc/distributed/c10d/init.cpp`, PyTorch 1.9 to 2.15; `lookupAddrForIface` in
//! `gloo/transport/tcp/device.cc`). PyTorch ignores a value of fewer than two characters. Without the
//! variable, the host name decides; see [`super::meeting`].

use super::Library;
use super::meeting::Grammar;
use crate::fabric::Rails;

const VARIABLE: &str = "GLOO_SOCKET_IFNAME";

const GRAMMAR: Grammar = Grammar {
    library: "Gloo",
    variable: VARIABLE,
    lost: "Gloo will fail with \"Unable to find address for\"",
    list: true,
    shortest: 2,
};

pub(crate) const LIBRARY: Library = Library {
    name: "gloo",
    title: "Gloo",
    packages: &["torch"],
    filled: &[VARIABLE],
    gid: &[],
    read: &["GLOO_"],
    is_here: |subject| GRAMMAR.is_here(subject),
    fills: |subject| GRAMMAR.fill(subject).into_iter().collect(),
    findings: |subject| GRAMMAR.finding(subject).map(Into::into).into_iter().collect(),
    will: |subject| GRAMMAR.will(subject),
};

pub(crate) fn value(variable: &str, rails: &Rails) -> Option<String> {
    GRAMMAR.value(variable, rails)
}
