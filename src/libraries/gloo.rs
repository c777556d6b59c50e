//! Gloo, as PyTorch has it (`torch/csrc/distributed/c10d/ProcessGroupGloo.cpp`).

use super::Fabric;

pub fn value(variable: &str, fabric: &Fabric) -> Option<String> {
    (variable == "GLOO_SOCKET_IFNAME").then_some(fabric.interface?.to_owned())
}
