//! Output of `rdma-init plan --in PID`, for people.

use std::io::{self, Write};

use crate::env_plugin::in_process::{Origin, Variable};
use crate::facts::secret::shown;
use crate::libraries::nccl::env_plugin::is_read_before;
use crate::text::{WIDEST, shortened, visible};

/// Writes the variables of a process, one per line.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(
    out: &mut impl Write,
    pid: u32,
    asks_ours: bool,
    variables: &[Variable],
) -> io::Result<()> {
    let asks = if asks_ours { "asks" } else { "does not ask" };
    writeln!(out, "process {pid}, as it was started: NCCL {asks} rdma-init's env plugin there")?;
    if variables.is_empty() {
        return writeln!(out, "  it has no NCCL variables");
    }
    let width = variables.iter().map(|one| one.name.len()).max().unwrap_or_default().min(WIDEST);
    for one in variables {
        let value = |value: &str| visible(&shortened(shown(&one.name, value)));
        let has = one.value.as_deref().map(value).unwrap_or_default();
        let gets = match &one.given {
            same if *same == one.value => String::new(),
            Some(given) => format!("; NCCL gets {}", value(given)),
            None => "; NCCL gets none, and decides itself".to_owned(),
        };
        let before = match asks_ours && is_read_before(&one.name) {
            true => "; NCCL reads it before it asks a plugin",
            false => "",
        };
        let (word, text) = words(one.origin);
        writeln!(out, "  {word:5}  {:width$}  {has:<8}  {text}{gets}{before}", visible(&one.name))?;
    }
    Ok(())
}

fn words(origin: Origin) -> (&'static str, &'static str) {
    match origin {
        Origin::Start => ("ours", "filled in when this container started"),
        Origin::OfUser => ("yours", "set by you for the start of this container"),
        Origin::Copy => ("copy", "filled in by another start, and copied"),
        Origin::Foreign => ("copy", "names only devices that this node does not have"),
        Origin::Process => ("own", "set by the parent that started the process"),
        Origin::Absent => ("unset", "not in the process"),
    }
}
