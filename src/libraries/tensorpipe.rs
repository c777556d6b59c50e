//! TensorPipe, as PyTorch has it (`torch/csrc/distributed/rpc/tensorpipe_agent.cpp`).

use crate::fabric::Rails;

pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    (variable == "TP_SOCKET_IFNAME").then_some(rails.interface?.to_owned())
}
