//! Tests files of the image that are something else: a FIFO without a writer, a device, a directory, or an
//! endless file. None of them delays a start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::support::running::{Ended, after, as_pid_1, from_scratch, in_place, rdma_init};

/// What the tests put in place of a file.
const ODD: [&str; 6] = ["fifo", "link to a fifo", "link to /dev/zero", "zeros", "folder", "sparse"];

fn put(path: &Path, what: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let beside = path.with_extension("elsewhere");
    match what {
        "fifo" => mkfifo(path, Mode::S_IRWXU).unwrap(),
        "link to a fifo" => {
            mkfifo(&beside, Mode::S_IRWXU).unwrap();
            symlink(&beside, path).unwrap();
        }
        "link to /dev/zero" => symlink("/dev/zero", path).unwrap(),
        "zeros" => {
            let made = Command::new("mknod").arg(path).args(["c", "1", "5"]).status().unwrap();
            assert!(made.success());
        }
        "folder" => fs::create_dir(path).unwrap(),
        "sparse" => fs::File::create(path).unwrap().set_len(1 << 40).unwrap(),
        other => panic!("{other}"),
    }
}

/// Starts a command in a mount namespace where `etc` is /etc.
fn start(etc: &Path, is_pid_1: bool, environment: &[(&str, &str)]) -> Ended {
    let script = "echo \"${T_X:-unprepared} ${NCCL_IB_TC:-without}\"";
    let mut ours = rdma_init(["--set", "T_X=prepared", "--set", "NCCL_IB_TC=7", "--", "sh", "-c", script]);
    ours.env_remove("RDMA_INIT_STATE_DIR").env("RDMA_INIT_WRITE_NCCL_CONF", "true");
    ours.env("HOME", "/etc/home").envs(environment.iter().copied());
    let mount = format!("mount --bind {} /etc; exec", etc.display());
    let ended = if is_pid_1 {
        as_pid_1(after(&mount, ours)).end()
    } else {
        let ours = after(&mount, ours);
        let mut own = Command::new("unshare");
        own.arg("--mount").arg(ours.get_program()).args(ours.get_args());
        own.env_clear().envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        own.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        from_scratch(&mut own);
        in_place(own).end()
    };
    ended.expect_code(0)
}

#[track_caller]
fn expect_prepared(ended: &Ended, what: &str) {
    assert_eq!(ended.stdout, "prepared 7\n", "{what}: {ended:#?}");
    assert!(!ended.stderr.contains("prepare-timeout"), "{what}: {ended:#?}");
}

#[test]
fn nccl_conf_may_be_anything() {
    for what in ODD {
        for is_pid_1 in [true, false] {
            let place = tempfile::tempdir().unwrap();
            let (etc, state) = (place.path().join("etc"), place.path().join("state"));
            put(&etc.join("nccl.conf"), what);
            let ended = start(&etc, is_pid_1, &[("RDMA_INIT_STATE_DIR", state.to_str().unwrap())]);
            expect_prepared(&ended, what);
            let told = "The variables cannot be written to /etc/nccl.conf";
            assert!(ended.stderr.contains(told), "{what}: {ended:#?}");
            // The program has neither written into it nor put a file in its place.
            let is_file = fs::symlink_metadata(etc.join("nccl.conf")).unwrap().is_file();
            assert_eq!(is_file, what == "sparse", "{what}");
        }
    }
}

/// The files that `propagate` reads and writes may be odd as well.
#[test]
fn files_of_other_programs_may_be_anything() {
    for what in ODD {
        let place = tempfile::tempdir().unwrap();
        let etc = place.path().join("etc");
        for file in [
            "environment",
            "profile.d/rdma-init.sh",
            "ssh/sshd_config",
            "ssh/sshd_config.d/a.conf",
            "ssh/sshd_config.d/rdma-init.conf",
            "home/.ssh/environment",
            "passwd",
        ] {
            put(&etc.join(file), what);
        }
        let wanted = [("RDMA_INIT_PROPAGATE", "profile,environment,ssh"), ("RDMA_INIT_STATE_DIR", "")];
        let ended = start(&etc, true, &wanted);
        expect_prepared(&ended, what);
        for told in ["/etc/environment: ", "/etc/profile.d/rdma-init.sh: ", "/etc/ssh/sshd_config"] {
            assert!(ended.stderr.contains(told), "{what}: no {told:?} in {ended:#?}");
        }
    }
}

/// If something else has the name of a state file, the state file replaces it.
#[test]
fn state_files_may_be_anything() {
    for what in ODD {
        let place = tempfile::tempdir().unwrap();
        let (etc, state) = (place.path().join("etc"), place.path().join("state"));
        fs::create_dir(&etc).unwrap();
        let names = ["env.sh", "nccl.conf", "plan.json", "facts.json"];
        names.iter().for_each(|name| put(&state.join(name), what));
        let ended = start(&etc, true, &[("RDMA_INIT_STATE_DIR", state.to_str().unwrap())]);
        expect_prepared(&ended, what);
        let made = names.map(|name| {
            let status = fs::symlink_metadata(state.join(name)).unwrap();
            status.is_file() && status.len() < 1 << 20
        });
        // A directory was moved out of the way, and anything else was replaced.
        assert_eq!(made, [true; 4], "{what}: {ended:#?}");
    }
}
