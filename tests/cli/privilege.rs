//! Tests a copy of the program that gives the rights of its owner to whoever starts it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::Uid;

use super::run::{Ran, run};
use crate::support::process::rdma_init;
use crate::support::{binary, skip};

/// Makes a folder with a copy of the program that everybody may execute.
fn copy(mode: u32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("rdma-init");
    fs::copy(binary(), &program).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
    (folder, program)
}

/// Starts the program as a user who is not root.
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
    // A set-user-ID file gives root no rights that root does not have.
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
