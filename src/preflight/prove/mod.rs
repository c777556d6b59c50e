//! Two nodes prove their rails: each pair in its own process.

pub(super) mod call;
pub(super) mod connections;
pub mod pair;
pub(super) mod rails;
pub(super) mod rounds;
pub(super) mod task;
pub(super) mod tcp;
