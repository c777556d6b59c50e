//! Carrying the decision out: limits, capabilities, environment, files. No
//! judging here.

pub mod environment;
pub mod memlock;
pub mod termination_log;
