//! Real containers of a Docker engine, from images that hold nothing but the
//! program and a busybox; the RDMA host that they see is made up.
//!
//! An engine is set up where there is none. See tests/docker/setup.sh.

mod support;

#[path = "nccl/library.rs"]
mod nccl_library;

mod docker {
    mod engine;
    mod entered;
    mod fill;
    mod host;
    mod image;
    mod lifecycle;
    mod limits;
    mod nccl;
    mod sandbox;
    mod shell;
    mod stop;
    mod terminal;
    mod traffic;
    mod trusted;
}
