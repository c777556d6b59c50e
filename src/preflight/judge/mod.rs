//! Judges the reports about all pairs: faults, what is slow, and the verdict.

pub(super) mod astray;
pub(crate) mod bisection;
pub(crate) mod cross;
pub mod culprit;
pub mod evidence;
pub mod judging;
pub mod outliers;
pub(crate) mod partial;
#[cfg(test)]
mod simulation;
pub mod verdict;
pub(crate) mod words;
