//! Tests the command line and everything that happens in place, without PID 1: usage,
//! configuration, output, and what the command inherits when it starts.

#[path = "tools/manual.rs"]
#[allow(dead_code)]
mod manual;
mod support;

mod cli {
    mod commands;
    mod compare;
    mod configuration;
    mod environment;
    mod hostile;
    mod install;
    mod limits;
    mod manual;
    mod memory;
    mod nodes;
    mod output;
    mod pair;
    mod pair_attacks;
    mod privilege;
    mod resolve;
    mod routing;
    mod run;
    mod self_test;
    mod signals;
    mod state;
    mod usage;
    mod why;
}
