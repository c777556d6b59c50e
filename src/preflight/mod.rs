//! The nodes of a job prove the fabric between all of them before the job starts.
//!
//! Node 0 hears all nodes ([`zero`]), and takes part itself like any of them ([`node`]). Each node
//! tries its pairs in the rounds of the [`schedule`] ([`rounds`]), each pair in a process of its own
//! ([`call`], [`prove`]).

mod call;
pub mod cross;
pub mod culprit;
pub mod evidence;
pub mod hostlist;
pub mod job;
pub mod judging;
mod local;
pub mod message;
mod names;
pub mod node;
pub mod outliers;
pub mod own;
pub mod pair;
pub mod part;
pub mod progress;
mod prove;
mod rounds;
pub mod run;
pub mod schedule;
mod task;
mod tcp;
pub mod verdict;
pub mod words;
pub mod zero;
