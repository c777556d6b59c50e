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
//! * [`facts`]: what the container has, its image included. Plain data, and readers that
//!   judge nothing.
//! * [`profiles`]: what platforms publish, as TOML.
//! * [`fabric`]: which rails a job has: HCAs, ports, GIDs, interface. It knows no library.
//! * [`libraries`]: each library's variables from what was decided; and a model of NCCL,
//!   release by release, as pure functions: what it makes of variables, and what it will do.
//! * [`plan`]: what to set, and why. Pure: this host, this environment, in; these settings
//!   and reasons, out.
//! * [`finding`], [`findings`]: the words for what a person should know, and who finds it: a
//!   file for each subject, pure functions of the host and what was decided for it.
//! * [`apply`]: carries it out: limits, capabilities, environment, files.
//! * [`state`]: what a start leaves for whoever enters the container later.
//! * [`report`]: for people and for programs.
//! * [`commands`], [`demo`]: the commands that print, and the hosts that come with the program.
//! * [`self_test`]: limits, image and fabric, proven.
//! * [`compare`]: the reports of many nodes, side by side.
//! * [`preflight`]: the nodes of a job prove the fabric between all of them.
//! * [`verbs`]: RDMA itself, in processes of its own.
//! * [`resolve`]: names of hosts, without the image's code.
//! * [`wire`]: how nodes talk to each other.
//! * [`sys`]: the low-level parts, the only `unsafe` beside verbs.
//! * [`log`], [`text`], [`json`], [`block`]: what everything shares.
//! * [`exit`]: the exit codes.
#![deny(unsafe_code)]

pub mod apply;
pub mod block;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod config;
pub mod demo;
pub mod exit;
pub mod fabric;
pub mod facts;
pub mod finding;
pub mod findings;
pub mod init;
pub mod json;
pub mod libraries;
pub mod log;
pub mod pipeline;
pub mod plan;
pub mod preflight;
pub mod profiles;
pub mod report;
pub mod resolve;
pub mod self_test;
pub mod start;
pub mod state;
pub mod sys;
pub mod text;
pub mod verbs;
pub mod wire;
