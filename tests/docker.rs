//! Real containers of a Docker engine, from images that hold nothing but the
//! program and a busybox; the RDMA host that they see is made up.
//!
//! An engine is set up where there is none. See tests/docker/setup.sh.

mod support;

mod docker {
    mod entered;
    mod fill;
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
