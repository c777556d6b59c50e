//! The reports of many nodes, side by side: which nodes differ from the others, and
//! which have none.
//!
//! [`collect`] reads files and directories line by line, [`finder`] finds reports among the lines
//! of a log, [`launcher`] what a launcher says about nodes without one, and [`comparison`] says
//! which nodes are the odd ones out.

pub mod brief;
pub(crate) mod collect;
pub(crate) mod comparison;
pub(crate) mod finder;
mod launcher;
pub(crate) mod lines;
