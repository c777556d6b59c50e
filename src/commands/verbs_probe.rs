//! `rdma-init verbs-probe`: every RDMA device through the built-in libibverbs.

use std::io::Write;

use crate::verbs;

pub fn run(out: &mut impl Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &verbs::probe::all())?;
    writeln!(out)?;
    Ok(())
}
