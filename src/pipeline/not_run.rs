//! Explains why the command could not be executed.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::cli::usage::advise_on_command;
use crate::exit;
use crate::facts::Reader;
use crate::facts::program::{self, Program, Starter};
use crate::sys::exec::PreparedExec;
use crate::text::visible;

/// Returns the message and the exit code.
pub fn exec_failed(command: &OsStr, error: Errno, image: &PreparedExec) -> (String, i32) {
    let name = visible(&String::from_utf8_lossy(command.as_bytes()));
    let reader = Reader::new(Path::new("/"));
    let folder = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let program = match error {
        Errno::ENOENT => program::first(&reader, &folder, image.files()),
        _ => None,
    };
    let is_missing = || !image.files().any(|file| reader.may_be_there(folder.join(file)));
    let advice = match (error, program.filter(|program| !program.is_there)) {
        (_, Some(program)) => without_starter(&program),
        (Errno::ENOENT, None) if name.is_empty() => "the name of the command is empty".to_owned(),
        (Errno::ENOENT, None) if name.starts_with('/') && is_missing() => "there is no such file".to_owned(),
        (Errno::ENOENT, None) if name.contains('/') && is_missing() => {
            format!("there is no such file; the working directory is {}", visible(&folder.to_string_lossy()))
        }
        (Errno::ENOENT, None) if name.contains('/') => {
            "its interpreter or dynamic loader is not in the image".to_owned()
        }
        (Errno::ENOENT, None) => "it is not in the PATH".to_owned(),
        (Errno::EACCES, _) if image.files().any(|file| reader.is_directory(folder.join(file))) => {
            "it is a directory".to_owned()
        }
        (Errno::EACCES, _) => "it is not an executable file that this user may run".to_owned(),
        (Errno::ENOEXEC, _) => "it is not in a format that this machine can run".to_owned(),
        _ => error.desc().to_owned(),
    };
    let shown = if name.is_empty() { "\"\"" } else { name.as_str() };
    let started_as = env::args_os().next().unwrap_or_default();
    let advised = (error == Errno::ENOENT).then(|| advise_on_command(&name, &started_as)).flatten();
    let of_image = advised.map_or_else(String::new, |advice| format!(" {advice}"));
    (format!("cannot run {shown}: {advice} ({error:?}).{of_image}"), exit::of_exec_error(error))
}

/// Returns the sentence for a file that exists although the program that would start it does not.
fn without_starter(program: &Program) -> String {
    let file = visible(&program.file.to_string_lossy());
    match &program.starter {
        Starter::Interpreter(path) if path.ends_with('\r') => format!(
            "the lines of {file} end with a carriage return, as on Windows, so its interpreter would be {path:?}; convert the file (dos2unix)"
        ),
        Starter::Interpreter(path) => format!(
            "the first line of {file} names the interpreter {}, which is not in the image",
            visible(path)
        ),
        Starter::Loader(path) => format!(
            "{file} needs the dynamic loader {}, which is not in the image (the file may be of another distribution, as with Alpine's musl)",
            visible(path)
        ),
    }
}
