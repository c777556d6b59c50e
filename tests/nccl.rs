//! Tests what the NCCL library itself decides on hosts that a test describes, without a GPU and without the
//! described devices. See tests/nccl/driver.

mod case;
mod data_direct;
mod decided;
mod described;
mod driver;
mod env_plugin;
mod env_plugin_faults;
mod env_plugin_node;
mod env_plugin_processes;
mod env_plugin_starts;
mod forecast;
mod harness;
mod host;
mod layout;
mod libibverbs;
mod model;
mod moved;
mod namespace;
mod namespaces;
mod outcome;
mod own_env_plugin;
mod rails;
mod random;
mod ras;
mod soft_roce;
mod texts;
