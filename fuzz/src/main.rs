//! The fuzzer for one target, which `FUZZ_TARGET` names when the fuzzer is built. libFuzzer looks at the counters of
//! the whole program after each input, so a program contains the code of one target alone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdma_init::fuzz::{TARGETS, Target};

const TARGET: Target = find(env!("FUZZ_TARGET"));

const fn find(name: &str) -> Target {
    let mut at = 0;
    while at < TARGETS.len() {
        let (known, target) = TARGETS[at];
        if is_same(known.as_bytes(), name.as_bytes()) {
            return target;
        }
        at += 1;
    }
    panic!("FUZZ_TARGET is one of the targets in src/fuzz.rs")
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    one.len() == other.len()
}

fuzz_target!(|data: &[u8]| TARGET(data));
