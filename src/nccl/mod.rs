//! How NCCL reads its variables and chooses: pure functions, after NCCL's own
//! rules and not after what they ought to be.

pub mod conf;
pub mod gid_walk;
pub mod list;
pub mod number;
