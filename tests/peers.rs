//! What other inits promise, held by this one: the cases of the test suites of tini,
//! dumb-init and pid1-rs, in our own words.
//!
//! With `RDMA_INIT_TEST_PEER=tini` the same cases run against tini, which shows that
//! they are not made to measure. What tini has no means for is skipped there, and
//! says so: `SKIPPED under tini: ...`.

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
