//! Tests that this init keeps what other inits promise. The cases are those of the test suites
//! of tini, dumb-init and pid1-rs, written anew.
//!
//! With `RDMA_INIT_TEST_PEER=tini` the same cases run against tini, which shows that they are
//! not made to fit rdma-init. A case that needs what tini does not have is skipped there, with
//! a line `SKIPPED under tini: ...`.

mod support;

mod peers {
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
}
