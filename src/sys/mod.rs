//! The low-level parts: all code that needs `unsafe`, except verbs.
//!
//! Each function wraps one kernel or libc facility in a safe signature, and each unsafe block states why it
//! is sound. This module contains no policy.
#![allow(unsafe_code)]

pub(crate) mod capabilities;
mod children;
mod crash;
mod deadline;
pub(crate) mod directory;
pub(crate) mod environ;
pub(crate) mod exec;
pub(crate) mod farewell;
#[cfg(test)]
pub(crate) mod filter;
pub(crate) mod fork;
pub(crate) mod last_words;
pub(crate) mod memfd;
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod names;
mod nonblocking;
mod origin;
pub(crate) mod pidfd;
pub(crate) mod random;
pub(crate) mod seccomp;
pub mod signals;
pub(crate) mod stdio;
pub(crate) mod take_over;
pub(crate) mod tcp;
pub(crate) mod terminal;
pub(crate) mod user;
pub(crate) mod worker;
