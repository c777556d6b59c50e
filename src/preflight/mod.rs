//! The nodes of a job prove the fabric between all of them before the job starts.
//!
//! Each node knows the job and itself ([`who`]). All go to node 0 ([`meet`]), which takes part like any of
//! them, and try their pairs in the rounds of its schedule ([`prove`]). Node 0 judges what the pairs
//! have said ([`judge`]).

mod error;
pub(crate) mod job;
pub mod judge;
pub mod meet;
pub mod prove;
pub mod run;
pub mod who;

pub use error::PreflightError;
