//! Tests a copy of the program that gives its owner's privileges to each user who starts it.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Gid, Uid, execve, setgid, setgroups, setuid};

use super::run::{Ran, run};
use crate::support::executable::copy_of_binary;
use crate::support::process::rdma_init;
use crate::support::skip;

/// Creates a directory with a copy of the program that all users may execute.
fn copy(mode: u32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = copy_of_binary(folder.path());
    fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
    (folder, program)
}

/// Runs the program as a user other than root.
fn by_other(program: &Path, arguments: &[&str], environment: &[(&str, &Path)]) -> Ran {
    let ours = rdma_init(arguments);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1234", "--regid", "1234", "--clear-groups"]).arg(program).args(arguments);
    command.env_clear().envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.envs(environment.iter().copied());
    run(command)
}

fn lends(program: &Path, capability: &str) -> bool {
    Command::new("setcap").arg(capability).arg(program).status().is_ok_and(|status| status.success())
}

#[test]
fn lent_rights_are_refused() {
    if !Uid::effective().is_root() {
        return skip("only root can lend its rights");
    }
    let folder = tempfile::tempdir().unwrap();
    let (secret, victim) = (folder.path().join("secret"), folder.path().join("victim"));
    fs::write(&secret, "a root-only line\n").unwrap();
    fs::write(&victim, "a root-only file\n").unwrap();
    for (mode, capability) in
        [(0o4755, None), (0o2755, None), (0o755, Some("cap_dac_override,cap_ipc_lock+ep"))]
    {
        let (_folder, program) = copy(mode);
        if capability.is_some_and(|capability| !lends(&program, capability)) {
            skip("setcap does not work here");
            continue;
        }
        for arguments in [&["--require-rdma", "--", "true"][..], &["plan"], &["--help"]] {
            let ran = by_other(
                &program,
                arguments,
                &[("RDMA_INIT_CONFIG", &secret), ("RDMA_INIT_TERMINATION_LOG", &victim)],
            );
            let ran = ran.expect_error(&["refusing to run", "chmod ug-s", "setcap -r"]);
            assert!(!ran.stderr.contains("root-only"), "{ran:#?}");
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "a root-only file\n");
}

#[test]
fn what_lends_nothing_runs() {
    if !Uid::effective().is_root() {
        return skip("only root can lend its rights");
    }
    // A set-user-ID file gives root no privileges that root does not already have.
    let (_folder, program) = copy(0o4755);
    let mut command = Command::new(&program);
    command.env_clear().env("RDMA_INIT_CONFIG", "/dev/null").arg("--version");
    run(command).expect_code(0);

    // This capability only lets a user pin memory.
    let (_folder, program) = copy(0o755);
    match lends(&program, "cap_ipc_lock+p") {
        true => drop(by_other(&program, &["--", "true"], &[]).expect_code(0)),
        false => skip("setcap does not work here"),
    }
}

/// Starts the program with exactly these environment entries, as another user, and returns those of its
/// command. Where other users can write, it can only read, and so leaves no state behind.
fn environment_through(program: &Path, environment: &[&CStr]) -> Vec<Vec<u8>> {
    let c = |text: &[u8]| CString::new(text).unwrap();
    let path = c(program.as_os_str().as_bytes());
    let arguments = [&b"rdma-init"[..], b"--", b"/bin/cat", b"/proc/self/environ"].map(c);
    let environment: Vec<CString> = environment.iter().map(|entry| (*entry).to_owned()).collect();
    let mut command = Command::new(program);
    let become_other = move || -> Result<(), Errno> {
        // SAFETY: system calls with constants.
        unsafe {
            let mount = |source, target, flags| {
                Errno::result(libc::mount(source, target, null(), flags, null())).map(drop)
            };
            Errno::result(libc::unshare(libc::CLONE_NEWNS))?;
            mount(null(), c"/".as_ptr(), libc::MS_REC | libc::MS_PRIVATE)?;
            for folder in [c"/tmp", c"/dev/shm"].map(CStr::as_ptr) {
                mount(folder, folder, libc::MS_BIND)?;
                mount(null(), folder, libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY)?;
            }
        }
        setgroups(&[])?;
        setgid(Gid::from_raw(1234))?;
        setuid(Uid::from_raw(1234))?;
        execve(&path, &arguments, &environment).map(drop)
    };
    // SAFETY: system calls with values that were prepared before the fork.
    unsafe { command.pre_exec(move || become_other().map_err(std::io::Error::from)) };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout.split_inclusive(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// The kernel makes the C library distrust the environment of a program with a file capability. The command
/// does not get this capability, and would otherwise have lost nothing.
#[test]
fn the_command_of_a_capable_program_gets_every_entry() {
    if !Uid::effective().is_root() {
        return skip("only root can lend its rights");
    }
    let ours = [c"RDMA_INIT_CONFIG=/dev/null", c"RDMA_INIT_STATE_DIR=", c"RDMA_INIT_WRITE_NCCL_CONF=false"];
    let first =
        [c"A=1", c"LD_LIBRARY_PATH=/a:/b", c"without an equals sign", c"GLIBC_TUNABLES=glibc.malloc.check=1"];
    let second = [c"", c"TMPDIR=/first", c"A=2", c"MALLOC_CHECK_=1", c"BYTES=\xff\xfe", c"LD_PRELOAD="];
    let third = [c"LD_AUDIT", c"LD_LIBRARY_PATH=/c", c"GCONV_PATH=/g", c"TMPDIR=/second", c"Z=1"];
    let environment = [&first[..], &ours, &second, &third].concat();
    let expected: Vec<Vec<u8>> = environment.iter().map(|entry| entry.to_bytes_with_nul().to_vec()).collect();
    let (_folder, program) = copy(0o755);
    assert_eq!(environment_through(&program, &environment), expected, "without a capability");
    if !lends(&program, "cap_ipc_lock+p") {
        return skip("setcap does not work here");
    }
    assert_eq!(environment_through(&program, &environment), expected);
    // The C library leaves no entry, or there is none at all.
    let alone = [c"LD_PRELOAD="];
    assert_eq!(environment_through(&program, &alone), [b"LD_PRELOAD=\0".to_vec()]);
    assert!(environment_through(&program, &[]).is_empty());
}
