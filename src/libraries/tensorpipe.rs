//! TensorPipe, as PyTorch has it (`torch/csrc/distributed/rpc/tensorpipe_agent.cpp`).

use super::Fabric;

pub fn value(variable: &str, fabric: &Fabric) -> Option<String> {
    (variable == "TP_SOCKET_IFNAME").then_some(fabric.interface?.to_owned())
}
