//! RDMA through libibverbs. Only this module uses rdma-sys.
//!
//! A provider library may hang or crash on a broken device, so this runs only in
//! processes that do nothing else: see `self_test/isolate.rs`.
//!
//! Each object borrows the one that it was made of, so the compiler makes sure that they are
//! destroyed in the right order. libibverbs refuses to destroy an object that is still in use.
#![allow(unsafe_code)]

pub mod completions;
pub mod device;
pub mod failure;
pub mod link;
pub mod loopback;
pub mod memory;
pub mod port_test;
pub mod probe;
mod providers;
pub mod queue_pair;
pub mod rail;
pub mod talk;
pub mod work;
