//! A model of NCCL as pure functions: how each release reads its variables and what it then chooses. It
//! follows NCCL's actual rules, not what they should be; tests/nccl compares it with the library itself.

pub(crate) mod c2c;
pub mod conf;
pub mod data_direct;
pub(crate) mod devices;
pub mod env_plugin;
pub(crate) mod fusion;
pub(crate) mod gid;
pub(crate) mod installed;
pub(crate) mod interfaces;
pub mod level;
pub(crate) mod libibverbs;
pub(crate) mod list;
pub mod log;
pub(crate) mod mnnvl;
pub(crate) mod network;
pub mod number;
pub(crate) mod plugin;
pub mod predict;
pub(crate) mod ranges;
pub(crate) mod ras;
pub(crate) mod variables;
pub mod version;
