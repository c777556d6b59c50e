//! Tests the command line and everything that happens in place, without PID 1: usage, configuration, output,
//! and what the command inherits when it starts.

mod changed;
mod commands;
mod compare;
mod compare_input;
mod configuration;
mod documents;
mod environment;
mod hostile;
mod in_process;
mod install;
mod interfaces;
mod limits;
mod manual;
mod master;
mod memory;
mod nodes;
mod output;
mod pair;
mod pair_attacks;
mod privilege;
mod profiles;
mod ras;
mod resolve;
mod routing;
mod run;
mod self_test;
mod signals;
mod state;
mod usage;
mod why;
