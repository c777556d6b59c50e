//! Tests that rdma-init behaves as other inits promise. The cases are those of the test suites of tini,
//! dumb-init and pid1-rs, rewritten.
//!
//! With `RDMA_INIT_TEST_PEER=tini`, the same cases run against tini, which shows that they are not tailored
//! to rdma-init. A case that needs a feature that tini lacks is skipped there, with a line
//! `SKIPPED under tini: ...`.

mod end;
mod groups;
mod inherited;
mod parent;
mod peer;
mod reaping;
mod rewriting;
mod signals;
mod terminal;
mod usage;
