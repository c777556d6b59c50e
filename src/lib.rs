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
//! * [`start`]: from `main` to the exec; decides whether this is PID 1.
//! * [`init`]: PID 1, or a subreaper. It forks, forwards, reaps and exits, and nothing else.
//! * [`cli`], [`config`]: what the user asked for, and in which layer.
//! * [`pipeline`]: the main job as a story, calling what follows: read, decide, find, refuse or
//!   apply, leave behind, exec.
//! * [`facts`]: what the container has. Plain data, and readers that judge nothing.
//! * [`image`]: the libraries of its image, found as the dynamic loader finds them. One of the facts.
//! * [`profiles`]: what platforms publish, as TOML.
//! * [`fabric`]: which rails a job has: HCAs, ports, GIDs, interface. It knows no library.
//! * [`libraries`]: each library's variables from what was decided; and a model of NCCL,
//!   release by release, as pure functions: what it makes of variables, and what it will do.
//! * [`plan`]: what to set, and why. Pure: this host, this environment, in; these settings
//!   and reasons, out.
//! * [`finding`], [`findings`]: the words for what a person should know, and who finds it: a
//!   file for each subject, pure functions of the host and what was decided for it.
//! * [`apply`]: carries it out: limits, capabilities, environment, files.
//! * [`state`]: what a start leaves for those who enter the container later.
//! * [`env_plugin`]: the shared object that NCCL asks for each variable, in every process.
//! * [`report`]: for people and for programs.
//! * [`commands`], [`demo`]: the commands that print, and the hosts that come with the program.
//! * [`self_test`]: limits, image and fabric, proven.
//! * [`compare`]: the reports of many nodes, side by side.
//! * [`preflight`]: the nodes of a job prove the fabric between all of them.
//! * [`watch`]: what happens while the job runs.
//! * [`verbs`]: RDMA itself, in processes of its own.
//! * [`resolve`]: names of hosts, without the image's code.
//! * [`wire`]: how nodes talk to each other.
//! * [`sys`]: the low-level parts, the only `unsafe` beside verbs.
//! * [`log`], [`text`], [`json`], [`block`]: what everything shares.
//! * [`exit`]: the exit codes.
//! * `fuzz`: what the fuzzers call; only in their build, and in the unit tests.
//!
//! A module is public only if the binary or the suites use it, so that rustc finds what is dead.
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
