//! All tests that run the program, as one program that is linked once. A module is a suite, which README.md describes, and
//! `cargo test --test suite cli::pair` runs a part of one. The golden hosts are a program of their own, because each of
//! their directories is a test.

mod support;

mod cli;
mod docker;
mod docs;
mod examples;
mod init;
mod launchers;
mod nccl;
mod peers;
mod preflight;
mod setup;
mod ucx;
mod vm;
