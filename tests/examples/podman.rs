//! Runs rdma-init as the init of Podman, with the command and the configuration of the example.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::support::{binary, poll_until, repository};

use super::setup::prepared;

const IMAGE: &str = "localhost/shell";

/// Podman asks for limits that root may not have where it lacks CAP_SYS_RESOURCE.
const OPTIONS: [&str; 3] = ["--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"];

/// Podman with images and containers of its own. The containers end when this value is dropped.
struct Podman {
    folder: tempfile::TempDir,
}

impl Podman {
    fn new() -> Podman {
        prepared("podman").expect("Podman is there");
        let podman = Podman { folder: tempfile::tempdir().unwrap() };
        let bin = podman.at("root/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
        for command in ["sh", "sleep", "tr"] {
            symlink("busybox", bin.join(command)).unwrap();
        }
        let file = podman.at("root.tar");
        let tar =
            Command::new("tar").arg("-cf").arg(&file).arg("-C").arg(podman.at("root")).arg(".").status();
        assert!(tar.unwrap().success());
        let imported = podman.podman([OsStr::new("import"), file.as_os_str(), OsStr::new(IMAGE)]);
        assert!(imported.status.success(), "{imported:?}");
        podman
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn podman<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Output {
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.at("storage")).arg("--runroot").arg(self.at("run"));
        // A machine without systemd has no cgroups for each container, and crun takes only some hierarchies of them.
        command.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--runtime=runc"]).args(arguments);
        let configuration = self.at("containers.conf");
        if configuration.exists() {
            command.env("CONTAINERS_CONF", configuration);
        }
        command.stdin(Stdio::null()).output().expect("podman is in the PATH")
    }

    /// Runs a container. Returns its exit code, output, and errors.
    fn run(&self, options: &[&str], command: &[&str]) -> (i32, String, String) {
        let words = ["run", "--rm"].iter().chain(&OPTIONS).chain(options).chain(&[IMAGE]).chain(command);
        let output = self.podman(words);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.podman(["rm", "--all", "--force", "--time=0"]);
    }
}

const SHOW_INIT: &str = "tr '\\000' ' ' </proc/1/cmdline; exit 7";

#[test]
#[ignore = "make test-podman: installs Podman"]
fn any_image_starts_under_podman_s_init() {
    let podman = Podman::new();
    let path = format!("--init-path={}", binary().display());
    let with_path = ["--init", &path];
    let under_init = format!("/run/podman-init -- sh -c {SHOW_INIT} ");
    let (code, stdout, stderr) = podman.run(&with_path, &["sh", "-c", SHOW_INIT]);
    assert_eq!((code, stdout.as_str()), (7, under_init.as_str()), "{stderr}");
    assert!(stderr.contains("there is no RDMA device in this container"), "{stderr}");
    let refuse = [with_path[0], with_path[1], "--env=RDMA_INIT_REQUIRE_RDMA=true"];
    let (code, _, stderr) = podman.run(&refuse, &["sh", "-c", "exit 7"]);
    assert_eq!(code, 121, "{stderr}");
    let (code, _, stderr) = podman.run(&with_path, &["torchrun"]);
    assert_eq!(code, 127, "{stderr}");
    assert!(stderr.contains("cannot run torchrun: it is not in the PATH"), "{stderr}");

    let words = ["--name=train", "--init", &path, IMAGE, "sleep", "1000"];
    let words = ["run", "--detach"].iter().chain(&OPTIONS).chain(&words);
    let started = podman.podman(words);
    assert!(started.status.success(), "{started:?}");
    let inside = |words: &[&str]| podman.podman(["exec", "train", "/run/podman-init"].iter().chain(words));
    poll_until("the container is prepared", || inside(&["status"]).status.success().then_some(()));
    let entered = inside(&["exec", "--", "sh", "-c", "exit 7"]);
    assert_eq!(entered.status.code(), Some(7), "{entered:?}");

    // With the file of the example, `--init` is enough, and needed.
    let text = fs::read_to_string(repository("examples/docker-init/containers.conf")).unwrap();
    let own = text.replace("/usr/local/bin/rdma-init", binary().to_str().unwrap());
    assert_ne!(own, text);
    fs::write(podman.at("containers.conf"), own).unwrap();
    let (code, stdout, stderr) = podman.run(&["--init"], &["sh", "-c", SHOW_INIT]);
    assert_eq!((code, stdout.as_str()), (7, under_init.as_str()), "{stderr}");
    let (code, stdout, stderr) = podman.run(&[], &["sh", "-c", SHOW_INIT]);
    assert_eq!((code, stdout.as_str()), (7, format!("sh -c {SHOW_INIT} ").as_str()), "{stderr}");
}
