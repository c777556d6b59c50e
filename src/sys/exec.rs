//! Replaces this process with the command.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

/// A command with everything that `execve` needs, prepared in advance: executing it allocates nothing, so a
/// signal handler may do so.
#[derive(Debug)]
pub struct PreparedExec {
    candidates: Vec<ExecCandidate>,
    _arguments: Vec<CString>,
    /// All entries, including the token and [`KEPT_VARIABLE`].
    _environment: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    shell_argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    /// The environment for this program itself, which may contain the token.
    own_envp: Vec<*const libc::c_char>,
}

/// A file that the exec tries.
#[derive(Debug)]
struct ExecCandidate {
    file: CString,
    /// Whether it is this program itself.
    is_own: bool,
}

/// The secret with which the nodes of a test authenticate each other. It is only for rdma-init, so no other
/// command gets it.
pub const TOKEN_VARIABLE: &str = "RDMA_INIT_TOKEN";

/// Tells a command and its children that [`TOKEN_VARIABLE`] was removed from their environment.
pub(crate) const KEPT_VARIABLE: &str = "RDMA_INIT_KEPT_TOKEN";

const KEPT: &CStr = c"RDMA_INIT_KEPT_TOKEN=1";

/// Under this path, the kernel provides the file that this process was started from.
const OWN: &str = "/proc/self/exe";

/// The program with which `execvp` runs a file that the kernel does not recognize.
const SHELL: &CStr = c"/bin/sh";

/// Where `execvp` searches if there is no `PATH` (glibc's `_CS_PATH`).
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

impl PreparedExec {
    /// Prepares a command. `arguments[0]` is the command: a path if it has a slash, otherwise a name to look
    /// up in the `PATH` of `environment`, as execvp(3) does. The command gets that environment without
    /// [`TOKEN_VARIABLE`], unless it is this program itself, which removes the token before it starts
    /// anything else.
    pub fn new(arguments: Vec<CString>, mut environment: Vec<CString>) -> PreparedExec {
        let is_token = |entry: &CString| is_of(TOKEN_VARIABLE, entry);
        let has_token = environment.iter().any(is_token);
        if has_token {
            environment.retain(|entry| !is_of(KEPT_VARIABLE, entry));
        }
        let candidates = match arguments.first() {
            Some(command) => candidates(command, &environment, has_token),
            None => Vec::new(),
        };
        let mut argv: Vec<_> = arguments.iter().map(|a| a.as_ptr()).collect();
        argv.push(std::ptr::null());
        // The arguments are sh FILE ARG...; the second place is filled with the file to try.
        let mut shell_argv = vec![SHELL.as_ptr(), std::ptr::null()];
        shell_argv.extend(argv.iter().skip(1));
        if argv.len() == 1 {
            shell_argv.push(std::ptr::null());
        }
        let all = environment.iter().map(|entry| entry.as_ptr());
        let own_envp: Vec<_> = all.chain([std::ptr::null()]).collect();
        let others = environment.iter().filter(|entry| !is_token(entry)).map(|entry| entry.as_ptr());
        let kept = has_token.then_some(KEPT.as_ptr());
        let envp: Vec<_> = others.chain(kept).chain([std::ptr::null()]).collect();
        PreparedExec {
            candidates,
            _arguments: arguments,
            _environment: environment,
            argv,
            shell_argv,
            envp,
            own_envp,
        }
    }

    /// Returns the files to try, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.candidates.iter().map(|candidate| Path::new(OsStr::from_bytes(candidate.file.to_bytes())))
    }

    /// Tries every candidate. Returns only if none could be run, with the error that execvp(3) would return:
    /// EACCES if a candidate existed but was not allowed, otherwise the last error.
    pub fn exec(&mut self) -> Errno {
        let mut denied = false;
        let mut last = Errno::ENOENT;
        for candidate in &self.candidates {
            let path = candidate.file.as_ptr();
            let envp = if candidate.is_own { &self.own_envp } else { &self.envp };
            // SAFETY: all pointers lead to C strings that `self` owns or that are static, and both
            // arrays end with a null pointer.
            unsafe { libc::execve(path, self.argv.as_ptr(), envp.as_ptr()) };
            last = Errno::last();
            if last == Errno::ENOEXEC {
                self.shell_argv[1] = path;
                // SAFETY: as above; the array has a place for the file.
                unsafe { libc::execve(SHELL.as_ptr(), self.shell_argv.as_ptr(), self.envp.as_ptr()) };
                return match Errno::last() {
                    // The shell does not exist, but the file itself does.
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

/// Returns the files to try. `tells_own` says whether to find out which of them is this program.
fn candidates(command: &CStr, environment: &[CString], tells_own: bool) -> Vec<ExecCandidate> {
    let own = if tells_own { own_file() } else { None };
    let candidate = |file: CString| {
        // A user who can replace the file before the exec can also decide which program is rdma-init in this
        // container.
        let found = own.as_ref().and_then(|_| fs::metadata(OsStr::from_bytes(file.to_bytes())).ok());
        let is_own = own.as_ref().zip(found.as_ref()).is_some_and(|(own, found)| is_same_file(own, found));
        ExecCandidate { file, is_own }
    };
    files(command, environment).into_iter().map(candidate).collect()
}

/// Returns the metadata of the file that this process was started from, even if it was deleted.
fn own_file() -> Option<Metadata> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(OWN).ok()?.metadata().ok()
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn files(command: &CStr, environment: &[CString]) -> Vec<CString> {
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
        assert_eq!(files(&c("x"), &environment), [c("/a/x"), c("x"), c("/b/x")]);
        assert_eq!(files(&c("./x"), &environment), [c("./x")]);
        assert_eq!(files(&c("x"), &[]), [c("/bin/x"), c("/usr/bin/x")]);
        assert!(files(&c(""), &environment).is_empty());
    }

    fn texts(pointers: &[*const libc::c_char]) -> Vec<&str> {
        let strings = pointers.iter().take_while(|pointer| !pointer.is_null());
        // SAFETY: each pointer leads to a C string of an image that the test still has.
        strings.map(|pointer| unsafe { CStr::from_ptr(*pointer) }.to_str().unwrap()).collect()
    }

    #[test]
    fn the_token_is_not_the_command_s_unless_it_is_this_program() {
        let environment = ["RDMA_INIT_TOKEN=hunter2", "RDMA_INIT_TOKENS=1", "RDMA_INIT_TOKEN", "A=1"];
        let own = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        let image = PreparedExec::new(vec![c(&own)], environment.map(c).to_vec());
        assert!(image.candidates[0].is_own);
        assert_eq!(texts(&image.own_envp), environment);
        assert_eq!(
            texts(&image.envp),
            ["RDMA_INIT_TOKENS=1", "RDMA_INIT_TOKEN", "A=1", "RDMA_INIT_KEPT_TOKEN=1"]
        );
        // A copy is another file, regardless of its name, and so is a shell.
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("rdma-init");
        fs::write(&copy, "").unwrap();
        for other in [copy.to_str().unwrap(), "/bin/sh", "/no/such"] {
            let image = PreparedExec::new(vec![c(other)], environment.map(c).to_vec());
            assert!(!image.candidates[0].is_own, "{other}");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let image = PreparedExec::new(vec![c(link.to_str().unwrap())], environment.map(c).to_vec());
        assert!(image.candidates[0].is_own);
    }

    #[test]
    fn a_command_without_a_token_gets_no_more_than_it_had() {
        let of = |environment: &[&str]| {
            let image = PreparedExec::new(vec![c("x")], environment.iter().map(|entry| c(entry)).collect());
            texts(&image.envp).join(" ")
        };
        assert_eq!(of(&["A=1"]), "A=1");
        // The mark of an outer rdma-init stays and is not duplicated.
        assert_eq!(of(&["RDMA_INIT_KEPT_TOKEN=1", "A=1"]), "RDMA_INIT_KEPT_TOKEN=1 A=1");
        let both = ["RDMA_INIT_KEPT_TOKEN=1", "RDMA_INIT_TOKEN=hunter2", "A=1"];
        assert_eq!(of(&both), "A=1 RDMA_INIT_KEPT_TOKEN=1");
    }

    #[test]
    fn missing_and_denied_are_told_apart() {
        let run = |command: &str| PreparedExec::new(vec![c(command)], vec![c("PATH=/nowhere")]).exec();
        assert_eq!(run("no-such-command"), Errno::ENOENT);
        assert_eq!(run("/no/such/command"), Errno::ENOENT);
        assert_eq!(run("/"), Errno::EACCES);
        assert_eq!(run(""), Errno::ENOENT);
    }
}
