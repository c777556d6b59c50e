//! The file that the kernel uses to start a program: a script's interpreter, or an ELF file's dynamic loader.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::reader::{Links, OpenFor, Reader, open_regular};
use crate::image::elf::Elf;

/// The number of bytes of a script that the kernel reads (`BINPRM_BUF_SIZE`).
const LOOKED_AT: u64 = 256;

/// A program, and what the kernel uses to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub file: PathBuf,
    pub starter: Starter,
    /// Whether the file of the interpreter or loader exists.
    pub is_there: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Starter {
    /// The interpreter in the first line, after `#!` (`fs/binfmt_script.c`).
    Interpreter(String),
    /// The loader in `PT_INTERP` (elf(5)).
    Loader(String),
}

impl Starter {
    pub(crate) fn path(&self) -> &str {
        match self {
            Starter::Interpreter(path) | Starter::Loader(path) => path,
        }
    }
}

/// Returns the first of these files that can be read and names its interpreter or loader. Relative paths of
/// files and interpreters start at `folder`, the working directory.
pub(crate) fn first<'a>(
    reader: &Reader,
    folder: &Path,
    files: impl IntoIterator<Item = &'a Path>,
) -> Option<Program> {
    files.into_iter().find_map(|file| {
        let starter = starter(reader, &folder.join(file))?;
        let is_there = reader.may_be_there(folder.join(starter.path()));
        Some(Program { file: file.to_owned(), starter, is_there })
    })
}

fn starter(reader: &Reader, path: &Path) -> Option<Starter> {
    // A program that cannot be read may still run, and exec itself says so if it cannot.
    let file = open_regular(&reader.path(path), OpenFor::Read, Links::Followed).ok()?;
    let mut start = Vec::new();
    Read::by_ref(&mut &file).take(LOOKED_AT).read_to_end(&mut start).ok()?;
    match start.strip_prefix(b"#!") {
        Some(line) => interpreter(line).map(Starter::Interpreter),
        None => Elf::open(&file).ok()?.interpreter().map(Starter::Loader),
    }
}

/// Returns the interpreter's path as the kernel reads it: up to the first space, tab, or end of line. A
/// carriage return is part of the name.
fn interpreter(line: &[u8]) -> Option<String> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    Some(String::from_utf8_lossy(words.next()?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn the_first_line_names_the_interpreter() {
        let root = FakeRoot::new();
        let found = |text: &str| {
            root.file("script", text);
            first(&root.reader(), Path::new("/"), [Path::new("/none"), Path::new("/script")])
        };
        let program = found("#! /bin/sh -e\necho\n").unwrap();
        assert_eq!(program.file, Path::new("/script"));
        assert_eq!((program.starter, program.is_there), (Starter::Interpreter("/bin/sh".into()), false));
        assert_eq!(found("#!/bin/sh\r\necho\r\n").unwrap().starter.path(), "/bin/sh\r");
        root.file("bin/sh", "");
        assert!(found("#!/bin/sh").unwrap().is_there);
        for none in ["#!\n/bin/sh", "echo", "", "#! \t"] {
            assert_eq!(found(none), None, "{none:?}");
        }
    }

    #[test]
    fn relative_paths_lead_from_the_working_folder() {
        let root = FakeRoot::new();
        root.file("job/run.sh", "#!tools/sh\n");
        let found = |file: &str| first(&root.reader(), Path::new("/job"), [Path::new(file)]);
        let program = found("./run.sh").unwrap();
        assert_eq!((program.file.as_path(), program.is_there), (Path::new("./run.sh"), false));
        assert_eq!(found("run.sh").unwrap().starter, Starter::Interpreter("tools/sh".into()));
        root.file("job/tools/sh", "");
        assert!(found("./run.sh").unwrap().is_there);
        assert_eq!(found("./other.sh"), None);
    }

    #[test]
    fn a_dynamic_program_names_its_loader() {
        let root = Path::new("/");
        let shell = first(&Reader::new(root), root, [Path::new("/bin/sh")]).unwrap();
        assert!(shell.starter.path().contains("/ld-"), "{shell:?}");
        assert!(shell.is_there);
    }
}
