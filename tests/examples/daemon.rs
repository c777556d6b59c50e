//! Runs rdma-init as the init of a separate Docker daemon, with the configuration of the example.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use crate::support::docker::engine;
use crate::support::{binary, poll_until, repository, skip};

const IMAGE: &str = "shell";

/// A daemon whose files are all in one directory. It ends with its containers when this value is dropped.
struct Daemon {
    process: Child,
    folder: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Option<Daemon> {
        // This installs Docker if it is missing.
        engine()?;
        if !geteuid().is_root() {
            skip("only root can start a Docker daemon");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = fs::read_to_string(repository("examples/docker-init/daemon.json")).unwrap();
        let mut configuration: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(configuration["init-path"], "/usr/local/bin/rdma-init");
        configuration["init-path"] = binary().to_str().unwrap().into();
        fs::write(at("daemon.json"), configuration.to_string()).unwrap();
        // A daemon without a bridge removes docker0. In its own network namespace, this one does not see
        // the machine's docker0.
        let mut dockerd = Command::new("unshare");
        dockerd.args(["--net", "dockerd"]);
        dockerd.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        for (option, name) in [
            ("--config-file", "daemon.json"),
            ("--pidfile", "pid"),
            ("--exec-root", "exec"),
            ("--data-root", "data"),
        ] {
            dockerd.arg(option).arg(at(name));
        }
        dockerd.args(["--host", &format!("unix://{}", at("socket").display())]);
        dockerd.args(["--bridge=none", "--iptables=false", "--ip-forward=false", "--storage-driver=vfs"]);
        let log = at("log");
        let mut start = || {
            let log = fs::File::create(&log).unwrap();
            dockerd.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
        };
        let process = start();
        let mut daemon = Daemon { process, folder };
        poll_until("the daemon answers", || {
            if let Some(ended) = daemon.process.try_wait().unwrap() {
                let log = fs::read_to_string(daemon.at("log")).unwrap();
                // It gives the containerd that it starts 15 s, which a busy machine may need.
                assert!(log.contains("timeout waiting for containerd to start"), "{ended:?}: {log}");
                daemon.process = start();
            }
            daemon.docker(["version"]).status.success().then_some(())
        });
        daemon.import_image();
        Some(daemon)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes an image of a busybox, without rdma-init.
    fn import_image(&self) {
        let bin = self.at("root/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
        for command in ["cat", "env", "sh", "sleep", "tr"] {
            symlink("busybox", bin.join(command)).unwrap();
        }
        let file = self.at("root.tar");
        let tar = Command::new("tar").arg("-cf").arg(&file).arg("-C").arg(self.at("root")).arg(".").status();
        assert!(tar.unwrap().success());
        let imported = self.docker([OsStr::new("import"), file.as_os_str(), OsStr::new(IMAGE)]);
        assert!(imported.status.success(), "{imported:?}");
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DOCKER_HOST", format!("unix://{}", self.at("socket").display())).stdin(Stdio::null());
        command
    }

    fn docker<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Output {
        self.client("docker").args(arguments).output().unwrap()
    }

    /// Runs a container with the daemon's init. Returns its exit code, output, and errors.
    fn run(&self, options: &[&str], command: &[&str]) -> (i32, String, String) {
        let base = ["run", "--rm", "--init", "--network=none"];
        let words = base.iter().chain(options).chain(&[IMAGE]).chain(command);
        let output = self.docker(words);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

const SHOW_INIT: &str = "tr '\\000' ' ' </proc/1/cmdline; exit 7";

#[test]
fn any_image_starts_under_the_daemon_s_init() {
    let Some(daemon) = Daemon::start() else { return };
    let (code, stdout, stderr) = daemon.run(&[], &["sh", "-c", SHOW_INIT]);
    assert_eq!((code, stdout.as_str()), (7, format!("/sbin/docker-init -- sh -c {SHOW_INIT} ").as_str()));
    assert!(stderr.contains("there is no RDMA device in this container"), "{stderr}");

    let (code, _, stderr) = daemon.run(&["--env=RDMA_INIT_REQUIRE_RDMA=true"], &["sh", "-c", "exit 7"]);
    assert_eq!(code, 121, "{stderr}");
    let (code, _, stderr) = daemon.run(&[], &["torchrun"]);
    assert_eq!(code, 127, "{stderr}");
    assert!(stderr.contains("cannot run torchrun: it is not in the PATH"), "{stderr}");
    // The advice names the engine's command line, because no Dockerfile is involved here.
    let (code, _, stderr) = daemon.run(&[], &["--model=m"]);
    assert_eq!(code, 127, "{stderr}");
    assert!(stderr.contains("docker run --init IMAGE COMMAND"), "{stderr}");
    assert!(!stderr.contains("ENTRYPOINT ["), "{stderr}");
    // The image's own entrypoint precedes the command.
    let (code, stdout, _) = daemon.run(&["--entrypoint=cat"], &["/proc/1/cmdline"]);
    assert_eq!((code, stdout.as_str()), (0, "/sbin/docker-init\0--\0cat\0/proc/1/cmdline\0"));

    let words = ["run", "--detach", "--init", "--network=none", "--name=train", IMAGE, "sleep", "1000"];
    assert!(daemon.docker(words).status.success());
    let inside = |words: &[&str]| daemon.docker(["exec", "train", "/sbin/docker-init"].iter().chain(words));
    poll_until("the container is prepared", || inside(&["status"]).status.success().then_some(()));
    let entered = inside(&["exec", "--", "sh", "-c", "exit 7"]);
    assert_eq!(entered.status.code(), Some(7), "{entered:?}");
    assert!(daemon.docker(["rm", "--force", "train"]).status.success());

    compose(&daemon);
}

/// Starts the service of the example, with an image and a command of this test.
fn compose(daemon: &Daemon) {
    let Some(program) = ["docker-compose", "docker"].into_iter().find(|program| {
        let words: &[&str] = if *program == "docker" { &["compose", "version"] } else { &["version"] };
        daemon.client(program).args(words).output().is_ok_and(|output| output.status.success())
    }) else {
        skip("there is no Compose (Debian's package docker-compose)");
        return;
    };
    let text = fs::read_to_string(repository("examples/docker-init/compose.yml")).unwrap();
    let mut changed = text;
    for (right, replacement) in [
        ("image: registry.example.com/vendor:1", "image: shell"),
        ("command: [python, train.py]", "command: [sh, -c, 'cat /proc/1/comm; exit 7']"),
        ("network_mode: host", "network_mode: none"),
        ("    devices: [/dev/infiniband]\n", ""),
        ("          - {driver: nvidia, count: all, capabilities: [gpu]}\n", ""),
        ("          devices:\n", ""),
        ("        reservations:\n", "        reservations: {}\n"),
    ] {
        assert!(changed.contains(right), "{changed}");
        changed = changed.replace(right, replacement);
    }
    let file = daemon.at("compose.yml");
    fs::write(&file, changed).unwrap();
    let mut command = daemon.client(program);
    if program == "docker" {
        command.arg("compose");
    }
    command.arg("--file").arg(file).args(["--project-name=train", "up", "--exit-code-from=train"]);
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(stdout.contains("docker-init"), "{stdout}");
}
