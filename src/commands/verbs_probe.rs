//! `rdma-init verbs-probe`: every RDMA device through the built-in libibverbs.

use std::io::Write;

use crate::json;
use crate::verbs;

pub fn run(out: &mut impl Write) -> anyhow::Result<()> {
    json::write(out, &verbs::probe::all())?;
    Ok(())
}
