//! The low-level parts: everything that needs `unsafe`, except verbs.
//!
//! Each function wraps one kernel or libc facility in a safe signature, with the
//! reason at every unsafe block. No policy lives here.
#![allow(unsafe_code)]

pub mod deadline;
pub mod environ;
pub mod exec;
pub mod fork;
pub mod last_words;
pub mod memory;
pub mod mounts;
pub mod names;
pub mod pidfd;
pub mod privilege;
pub mod random;
pub mod signals;
pub mod stdio;
pub mod terminal;
