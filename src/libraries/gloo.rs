//! Gloo, as PyTorch has it (`torch/csrc/distributed/c10d/ProcessGroupGloo.cpp`).

use crate::fabric::Rails;

pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    (variable == "GLOO_SOCKET_IFNAME").then_some(rails.interface?.to_owned())
}
