//! Carries out the decision: limits, capabilities, environment, files. It judges nothing.

pub(crate) mod amend;
pub(crate) mod environment;
pub(crate) mod install;
pub(crate) mod memlock;
pub(crate) mod nccl_conf;
pub(crate) mod node_list;
pub(crate) mod propagate;
pub(crate) mod state;
pub(crate) mod termination_log;
