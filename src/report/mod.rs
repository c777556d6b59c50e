//! What people and programs read: everything writes to an `impl Write` or
//! returns text, and nothing here decides anything.

pub mod compare;
pub mod environment;
pub mod facts;
mod forecast;
pub mod formats;
mod image;
pub mod plan;
pub mod preflight;
pub mod preflight_page;
pub mod self_test;
pub mod start;
pub mod stat;
pub mod topology;
pub mod traffic;
pub mod why;
