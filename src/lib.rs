//! `rdma-init`: what a multi-node GPU training container should start with.
//!
//! ```text
//!            PID 1                                    its child (same PID when not PID 1)
//! block signals -> fork ----------------------------> config -> facts -> plan -> findings -> apply -> exec COMMAND
//!      |                                              (figment) (read)  (pure)  (pure)      (rlimit,
//! forward signals, reap, exit with the child's code                                         caps, env)
//! ```
//!
//! The modules, in the order of that flow:
//!
//! * [`start`]: runs from `main` to the exec; decides whether this process is PID 1.
//! * [`init`]: PID 1, or a subreaper. It forks, forwards, reaps, and exits, and does nothing else.
//! * [`cli`], [`config`]: what the user asked for, and in which layer.
//! * [`pipeline`]: the main job, step by step, calling the modules below: read, decide, find, refuse or
//!   apply, save the state, exec.
//! * [`facts`]: what the container has: plain data, and readers that judge nothing.
//! * [`image`]: the libraries in its image, found as the dynamic loader finds them. One of the facts.
//! * [`profiles`]: what platforms publish, as TOML.
//! * [`fabric`]: which rails a job has: HCAs, ports, GIDs, and the network interface. It knows no library.
//! * [`libraries`]: derives each library's variables from the decision. It contains a model of NCCL for
//!   each release: pure functions that predict how NCCL reads variables, and what it will do.
//! * [`plan`]: what to set, and why. Pure: takes this host and this environment, returns the settings and
//!   the reasons.
//! * [`finding`], [`findings`]: the texts of the diagnostics, and the checks that produce them: one file
//!   for each subject, with pure functions of the host and the decision for it.
//! * [`apply`]: carries out the plan: limits, capabilities, environment, and files.
//! * [`state`]: what a start saves for processes that enter the container later.
//! * [`env_plugin`]: the shared object that NCCL queries for each variable in every process.
//! * [`report`]: output for people and for programs.
//! * [`commands`], [`demo`]: the commands that print, and the demo hosts that come with the program.
//! * [`self_test`]: tests limits, image, and fabric.
//! * [`compare`]: compares the reports of many nodes.
//! * [`preflight`]: the nodes of a job test the fabric between all of them.
//! * [`watch`]: monitors the job while it runs.
//! * [`verbs`]: RDMA itself, in separate processes.
//! * [`resolve`]: resolves host names without the image's code.
//! * [`wire`]: how nodes communicate.
//! * [`sys`]: the low-level parts, with the only `unsafe` code besides verbs.
//! * [`log`], [`text`], [`json`], [`block`]: shared by all modules.
//! * [`exit`]: the exit codes.
//! * `fuzz`: what the fuzzers call; only in their build and in the unit tests.
//!
//! A module is public only if the binary or the test suites use it, so that rustc finds dead code.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

pub(crate) mod apply;
pub(crate) mod block;
pub mod cli;
pub(crate) mod commands;
pub mod compare;
pub mod config;
pub mod demo;
pub mod env_plugin;
pub(crate) mod exit;
pub mod fabric;
pub mod facts;
pub mod finding;
pub mod findings;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod image;
pub(crate) mod init;
pub(crate) mod json;
pub mod libraries;
pub(crate) mod log;
pub(crate) mod nearest;
pub mod pipeline;
pub mod plan;
pub mod preflight;
pub mod profiles;
pub(crate) mod report;
pub(crate) mod resolve;
pub mod self_test;
pub mod start;
pub mod state;
pub mod sys;
pub(crate) mod text;
pub(crate) mod verbs;
pub(crate) mod watch;
pub mod wire;
