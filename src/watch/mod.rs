//! What happens while the job runs.

pub(crate) mod ras;
