//! Compares the reports of many nodes: which nodes differ from the others, and which have no report.
//!
//! [`collect`] reads files and directories line by line. [`finder`] finds reports among the lines of a
//! log, and [`launcher`] finds what a launcher reports about nodes without one. [`comparison`]
//! determines which nodes are the odd ones out.

pub mod brief;
pub(crate) mod collect;
pub(crate) mod comparison;
pub(crate) mod finder;
mod launcher;
pub(crate) mod lines;
