//! The fuzzer for all targets. `FUZZ_TARGET` names the target to run. Linking one program takes a fraction
//! of the time that sixteen programs would take.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use rdma_init::fuzz::{TARGETS, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(
    init: {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(known, _)| *known == name);
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        let (_, target) = found.unwrap_or_else(|| panic!("FUZZ_TARGET is one of {}", names.join(" ")));
        TARGET.get_or_init(|| *target);
    },
    |data: &[u8]| TARGET.get().expect("it is set at the start")(data)
);
