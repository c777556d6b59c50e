//! Findings that rdma-init cannot mend by a setting: about the user's own values, limits, the
//! image, and what could not be read. Pure, like the plan.

pub mod gpu_direct;
pub mod image;
pub mod lint;
pub mod memlock;
pub mod nccl_conf;
pub mod parent;
pub mod pkey;
pub mod routes;
pub mod secrets;
pub mod shared_memory;
pub mod traffic;
pub mod unreadable;
