//! RDMA through libibverbs: the only user of rdma-sys.
//!
//! A provider library may hang or crash on a broken device, so this runs only in
//! processes that do nothing else.
#![allow(unsafe_code)]

pub mod probe;
mod providers;
