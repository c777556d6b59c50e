//! Replacing this process by the command.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

/// A command with everything that `execve` needs, laid out in advance: to execute it allocates
/// nothing, so that this also works in a signal handler.
#[derive(Debug)]
pub struct Image {
    candidates: Vec<CString>,
    _arguments: Vec<CString>,
    _environment: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    shell_argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

/// The secret by which two nodes of a self-test know each other. It is for rdma-init alone, so
/// the command does not get it.
pub const TOKEN_VARIABLE: &str = "RDMA_INIT_TOKEN";

/// The program with which `execvp` runs a file that the kernel does not recognise.
const SHELL: &CStr = c"/bin/sh";

/// Where `execvp` looks when there is no `PATH` (glibc's `_CS_PATH`).
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

impl Image {
    /// `arguments[0]` is the command: a path when it has a slash, otherwise
    /// looked up in the `PATH` of `environment`, as execvp(3) does. The command gets that
    /// environment without [`TOKEN_VARIABLE`].
    pub fn new(arguments: Vec<CString>, mut environment: Vec<CString>) -> Image {
        environment.retain(|entry| !is_of(TOKEN_VARIABLE, entry));
        let candidates = match arguments.first() {
            Some(command) => candidates(command, &environment),
            None => Vec::new(),
        };
        let mut argv: Vec<_> = arguments.iter().map(|a| a.as_ptr()).collect();
        argv.push(std::ptr::null());
        // The arguments are sh FILE ARG...; the second place is filled with the file that is
        // tried.
        let mut shell_argv = vec![SHELL.as_ptr(), std::ptr::null()];
        shell_argv.extend(argv.iter().skip(1));
        if argv.len() == 1 {
            shell_argv.push(std::ptr::null());
        }
        let mut envp: Vec<_> = environment.iter().map(|e| e.as_ptr()).collect();
        envp.push(std::ptr::null());
        Image { candidates, _arguments: arguments, _environment: environment, argv, shell_argv, envp }
    }

    /// The files that are tried, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.candidates.iter().map(|file| Path::new(OsStr::from_bytes(file.to_bytes())))
    }

    /// Tries every candidate; returns only when none could be run, with the
    /// error that execvp(3) would give: EACCES when one was there but not
    /// allowed, otherwise the last one.
    pub fn exec(&mut self) -> Errno {
        let mut denied = false;
        let mut last = Errno::ENOENT;
        for candidate in &self.candidates {
            let path = candidate.as_ptr();
            // SAFETY: all pointers lead to C strings that `self` owns, and both
            // arrays end with a null pointer.
            unsafe { libc::execve(path, self.argv.as_ptr(), self.envp.as_ptr()) };
            last = Errno::last();
            if last == Errno::ENOEXEC {
                self.shell_argv[1] = path;
                // SAFETY: as above; the array has a place for the file.
                unsafe { libc::execve(SHELL.as_ptr(), self.shell_argv.as_ptr(), self.envp.as_ptr()) };
                return match Errno::last() {
                    // The shell does not exist; the file itself does.
                    Errno::ENOENT => Errno::ENOEXEC,
                    other => other,
                };
            }
            match last {
                Errno::EACCES => denied = true,
                Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ENODEV | Errno::ETIMEDOUT => {}
                other => return other,
            }
        }
        if denied { Errno::EACCES } else { last }
    }
}

fn is_of(variable: &str, entry: &CStr) -> bool {
    entry.to_bytes().strip_prefix(variable.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
}

fn candidates(command: &CStr, environment: &[CString]) -> Vec<CString> {
    let command = command.to_bytes();
    if command.is_empty() {
        return Vec::new();
    }
    if command.contains(&b'/') {
        return CString::new(command).into_iter().collect();
    }
    let path =
        environment.iter().find_map(|entry| entry.to_bytes().strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    path.split(|byte| *byte == b':')
        .filter_map(|folder| {
            let mut full = folder.to_vec();
            // An empty element of PATH means the working directory.
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(command);
            CString::new(full).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    #[test]
    fn a_bare_name_is_looked_up_in_path_and_a_path_is_not() {
        let environment = [c("PATH=/a::/b"), c("PATH=/never")];
        assert_eq!(candidates(&c("x"), &environment), [c("/a/x"), c("x"), c("/b/x")]);
        assert_eq!(candidates(&c("./x"), &environment), [c("./x")]);
        assert_eq!(candidates(&c("x"), &[]), [c("/bin/x"), c("/usr/bin/x")]);
        assert!(candidates(&c(""), &environment).is_empty());
    }

    #[test]
    fn the_token_is_not_the_command_s() {
        let environment = ["RDMA_INIT_TOKEN=hunter2", "RDMA_INIT_TOKENS=1", "RDMA_INIT_TOKEN", "A=1"];
        let image = Image::new(vec![c("x")], environment.map(c).to_vec());
        assert_eq!(image._environment, ["RDMA_INIT_TOKENS=1", "RDMA_INIT_TOKEN", "A=1"].map(c));
        assert_eq!(image.envp.len(), 4);
    }

    #[test]
    fn missing_and_denied_are_told_apart() {
        let run = |command: &str| Image::new(vec![c(command)], vec![c("PATH=/nowhere")]).exec();
        assert_eq!(run("no-such-command"), Errno::ENOENT);
        assert_eq!(run("/no/such/command"), Errno::ENOENT);
        assert_eq!(run("/"), Errno::EACCES);
        assert_eq!(run(""), Errno::ENOENT);
    }
}
