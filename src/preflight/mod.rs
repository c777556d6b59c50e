//! The nodes of a job prove the fabric between all of them before the job starts.
//!
//! Each node finds out about the job and about itself ([`who`]). All nodes connect to node 0
//! ([`meet`]), which takes part like any of them, and test their pairs in the rounds of node 0's
//! schedule ([`prove`]). Node 0 judges what the pairs reported ([`judge`]).

pub(crate) mod job;
pub mod judge;
pub mod meet;
pub mod prove;
pub mod run;
pub mod who;
