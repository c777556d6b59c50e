//! TensorPipe, which PyTorch's RPC uses. `TP_SOCKET_IFNAME` is one exact name; if TensorPipe does not find
//! it, it logs that and uses 127.0.0.1 (`guessAddress` in `torch/csrc/distributed/rpc/tensorpipe_agent.cpp`,
//! PyTorch 1.6 to 2.15). An empty value is such a name. Without the variable, the host name decides; see
//! [`super::meeting`].

use super::Library;
use super::meeting::Grammar;
use crate::fabric::Rails;

const VARIABLE: &str = "TP_SOCKET_IFNAME";

const GRAMMAR: Grammar = Grammar {
    library: "TensorPipe",
    variable: VARIABLE,
    lost: "TensorPipe will take 127.0.0.1, which no other node can reach",
    list: false,
    shortest: 0,
};

pub(super) const LIBRARY: Library = Library {
    name: "tensorpipe",
    title: "TensorPipe",
    packages: &["torch"],
    filled: &[VARIABLE],
    gid: &[],
    read: &[VARIABLE, "TP_SOCKET_"],
    is_here: |subject| GRAMMAR.is_here(subject),
    fills: |subject| GRAMMAR.fill(subject).into_iter().collect(),
    findings: |subject| GRAMMAR.finding(subject).map(Into::into).into_iter().collect(),
    will: |subject| GRAMMAR.will(subject),
};

pub(super) fn value(variable: &str, rails: &Rails) -> Option<String> {
    GRAMMAR.value(variable, rails)
}
