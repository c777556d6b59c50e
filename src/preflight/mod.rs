//! The nodes of a job prove the fabric between all of them before the job starts.

pub mod pair;
pub mod schedule;
