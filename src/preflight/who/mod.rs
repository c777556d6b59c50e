//! Which nodes the job has, what they are called, and what this one contributes.

pub mod addresses;
pub(super) mod local;
pub(super) mod names;
pub mod own;
pub(crate) mod part;
pub(super) mod passed;
pub(crate) mod scheduler;
