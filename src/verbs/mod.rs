//! RDMA through libibverbs. Only this module uses rdma-sys.
//!
//! A provider library may hang or crash on a broken device, so this runs only in
//! processes that do nothing else: see `self_test/isolate.rs`.
//!
//! Each object borrows the object from which it was made, so the compiler ensures that they are
//! destroyed in the right order. libibverbs refuses to destroy an object that is still in use.
#![allow(unsafe_code)]

pub(crate) mod completions;
pub(crate) mod device;
pub(crate) mod failure;
pub(crate) mod link;
pub(crate) mod loopback;
pub(crate) mod memory;
pub(crate) mod port_test;
pub(crate) mod probe;
mod providers;
pub(crate) mod queue_pair;
pub(crate) mod rail;
pub(crate) mod step;
pub(crate) mod talk;
pub(crate) mod work;
