//! The job's programs: the command, its interpreter, and Python.

use std::path::{Path, PathBuf};

use super::architecture::{Foreign, ForeignKind, foreign_program};
use super::elf;
use super::tree::Tree;
use crate::facts::start::Start;

/// In bytes: how much of a script's first line the kernel reads (`BINPRM_BUF_SIZE`).
const SHEBANG: usize = 256;

/// The most directories of the `PATH` to search.
const MOST: usize = 64;

/// Returns the programs that are for another architecture.
pub(super) fn foreign(tree: &Tree, start: Start) -> Vec<Foreign> {
    let command = start.command.and_then(|command| in_path(tree, start, command));
    let interpreter = command.as_ref().and_then(|command| interpreter(tree, start, command));
    let mut found: Vec<Foreign> = Vec::new();
    for (kind, path) in [
        (ForeignKind::Command, command),
        (ForeignKind::Command, interpreter),
        (ForeignKind::Python, in_path(tree, start, "python3").or_else(|| in_path(tree, start, "python"))),
    ] {
        let foreign = path.and_then(|path| foreign_program(tree, kind, &path));
        let is_new = |foreign: &Foreign| !found.iter().any(|known| known.path == foreign.path);
        if let Some(foreign) = foreign.filter(is_new) {
            found.push(foreign);
        }
    }
    found
}

/// Returns the program that a script's first line names; if that is `/usr/bin/env`, returns the program in
/// its argument.
pub(super) fn interpreter(tree: &Tree, start: Start, script: &Path) -> Option<PathBuf> {
    let mut line = [0; SHEBANG];
    let length = elf::read_at(&tree.open(&tree.real(script)?)?, &mut line, 0).ok()?;
    let line = std::str::from_utf8(line.get(..length)?.split(|byte| *byte == b'\n').next()?).ok()?;
    let mut words = line.strip_prefix("#!")?.split_whitespace();
    let first = words.next()?;
    let interpreter = match first.ends_with("/env") {
        true => words.find(|word| !word.starts_with('-') && !word.contains('='))?,
        false => first,
    };
    in_path(tree, start, interpreter)
}

/// Finds a program as execvp(3) does.
pub(super) fn in_path(tree: &Tree, start: Start, name: &str) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.contains('/') {
        return start.path(name).filter(|path| tree.is_there(path));
    }
    let folders = start.environment.get("PATH").unwrap_or_default().split(':').take(MOST);
    folders.filter_map(|folder| Some(start.path(folder)?.join(name))).find(|path| tree.is_there(path))
}
