//! Output for people and for programs. Every function writes to an `impl Write` or returns text, and none
//! makes a decision.

pub(crate) mod account;
mod against;
pub(crate) mod compare;
pub(crate) mod environment;
pub(crate) mod facts;
mod forecast;
pub(crate) mod formats;
pub(crate) mod headline;
mod image;
pub(crate) mod metrics;
pub(crate) mod plan;
pub(crate) mod preflight;
pub(crate) mod preflight_page;
pub(crate) mod process;
pub(crate) mod ras;
pub(crate) mod self_test;
pub(crate) mod start;
pub(crate) mod stat;
pub(crate) mod topology;
pub(crate) mod why;
