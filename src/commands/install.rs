//! Implements `rdma-init install DIR`: copies this program for an image that cannot be rebuilt.

use std::io::Write;
use std::path::Path;

use anyhow::anyhow;

use crate::apply::install::{Installed, install};
use crate::log::say;

pub(super) fn run(out: &mut impl Write, folder: &Path) -> anyhow::Result<()> {
    let Installed { path, was_there, noexec } = install(folder).map_err(|why| anyhow!(why))?;
    let done = if was_there { "is already" } else { "is now" };
    writeln!(out, "{} {done} rdma-init {}", path.display(), env!("CARGO_PKG_VERSION"))?;
    if noexec {
        say(&format!(
            "{} is mounted noexec here: programs in it can be started only where it is mounted without noexec.",
            folder.display()
        ));
    }
    Ok(())
}
