//! The nodes of a job prove the fabric between all of them before the job starts.

pub mod hostlist;
pub mod pair;
pub mod part;
pub mod schedule;
