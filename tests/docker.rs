//! Tests real containers of a Docker engine. Their images contain only the program, or the program and a
//! busybox. They see a simulated RDMA host.
//!
//! If there is no engine, tests/docker/setup.sh sets one up.

mod entered;
mod fill;
mod image;
mod lifecycle;
mod limits;
mod nccl;
mod node_list;
mod preflight;
mod sandbox;
mod shell;
mod stop;
mod terminal;
mod traffic;
mod trusted;
