//! NCCL's RAS: the processes of a job keep a network among themselves, and each of them answers
//! what all ranks of all communicators are doing (`src/ras` of NCCL, 2.24 and later).
//!
//! * [`client`]: asks, with a bound in time and in size.
//! * [`protocol`]: what is sent, and what an answer is; [`json`] and [`text`] are its two formats.
//! * [`answer`]: an answer as plain data, whatever its format.
//! * [`judge`]: which ranks are missing, dead, failed or behind, and whether a job hangs.
//! * [`words`]: the sentences about it.
//! * [`names`]: the names of the hosts, which RAS knows by their addresses.
//!
//! An answer comes from a process of the job, so nothing in it is trusted.

pub(crate) mod answer;
pub(crate) mod client;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod json;
pub(crate) mod judge;
pub(crate) mod names;
mod protocol;
mod text;
pub(crate) mod words;

#[cfg(test)]
mod tests;
