//! NCCL's RAS: the processes of a job form a network with each other, and each of them reports what all
//! ranks of all communicators are doing (`src/ras` of NCCL, 2.24 and later).
//!
//! * [`client`]: queries a server, with limits in time and in size.
//! * [`protocol`]: the question, and the form of an answer; [`json`] and [`text`] are its two formats.
//! * [`answer`]: an answer as plain data, whatever its format.
//! * [`judge`]: which ranks are missing, dead, failed, or behind, and whether a job hangs.
//! * [`words`]: the sentences about the verdict.
//! * [`names`]: the names of the hosts, which RAS knows by address.
//! * [`own`]: whether the answer is about this container.
//!
//! An answer comes from a process of the job, so nothing in it is trusted.

pub(crate) mod answer;
pub(crate) mod client;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod json;
pub(crate) mod judge;
pub(crate) mod names;
pub(crate) mod own;
mod protocol;
mod text;
pub(crate) mod words;

#[cfg(test)]
mod tests;
