//! The nodes of a job prove the fabric between all of them before the job starts.

pub mod culprit;
pub mod evidence;
pub mod hostlist;
pub mod outliers;
pub mod pair;
pub mod part;
pub mod schedule;
