//! Carries the decision out: limits, capabilities, environment, files. Nothing is judged here.

pub mod amend;
pub mod environment;
pub mod install;
pub mod memlock;
pub mod nccl_conf;
pub mod node_list;
pub mod propagate;
pub mod state;
pub mod termination_log;
