//! A model of NCCL: how it reads its variables and what it then chooses, as pure
//! functions, by release where that matters. After NCCL's own rules and not after
//! what they ought to be; tests/nccl compares it with the library itself.

pub mod c2c;
pub mod conf;
pub mod data_direct;
pub mod devices;
pub mod fusion;
pub mod gid;
pub mod installed;
pub mod interfaces;
pub mod level;
pub mod list;
pub mod mnnvl;
pub mod network;
pub mod number;
pub mod plugin;
pub mod predict;
pub mod variables;
pub mod version;
