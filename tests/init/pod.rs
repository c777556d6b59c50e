//! A container with its own root file system, the victim, and another container beside it. Root of the
//! other container has no capabilities, and it shares directories with the victim, as the containers of a
//! Pod may.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::hang::Hang;
use crate::support::running::{Running, after, as_pid_1, children, hanging, in_place, rdma_init};
use crate::support::{binary, poll_until};

/// What the victim's start is configured to set. The first variable is harmless. The second one is not,
/// because it names a file.
pub const SET: &str = "NCCL_IB_TC=106\nNCCL_TOPO_FILE=/topology.xml";

/// The variables that the other container tries to give to the victim's processes.
const EVIL: [(&str, &str); 8] = [
    ("LD_PRELOAD", "/tmp/evil.so"),
    ("BASH_ENV", "/tmp/evil.sh"),
    ("PYTHONPATH", "/tmp/evil"),
    ("NCCL_NET_PLUGIN", "/tmp/evil.so"),
    ("NCCL_TUNER_PLUGIN", "evil"),
    ("NCCL_TOPO_FILE", "/tmp/evil.xml"),
    ("NCCL_CONF_FILE", "/tmp/evil.conf"),
    ("NCCL_IB_TC", "66"),
];

/// The directories that both containers share, and the place where the victim's root is made.
pub struct Pod {
    folder: tempfile::TempDir,
    /// A directory on a tmpfs, whose root directory belongs to root.
    shared: tempfile::TempDir,
    mounts: Vec<&'static str>,
    is_read_only: bool,
    is_rootless: bool,
    user: u32,
}

impl Pod {
    /// Makes a Pod whose containers share the directories at these paths.
    pub fn sharing(mounts: &[&'static str]) -> Pod {
        let shared = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::set_permissions(shared.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let pod = Pod {
            folder: tempfile::tempdir().unwrap(),
            shared,
            mounts: mounts.to_vec(),
            is_read_only: false,
            is_rootless: false,
            user: 0,
        };
        for mount in mounts {
            pod.make(mount, 0o1777);
        }
        pod
    }

    pub fn read_only(self) -> Pod {
        Pod { is_read_only: true, ..self }
    }

    /// Puts the victim into a user namespace, like a container that an unprivileged user started.
    pub fn rootless(self) -> Pod {
        Pod { is_rootless: true, ..self }
    }

    /// Sets the user of the victim's PID 1.
    pub fn user(self, user: u32) -> Pod {
        Pod { user, ..self }
    }

    /// Returns the directory that the containers share at this path.
    pub fn shared(&self, mount: &str) -> PathBuf {
        self.shared.path().join(mount.trim_start_matches('/').replace('/', "-"))
    }

    /// Makes the directory at this path with this mode, as a volume driver does.
    pub fn make(&self, mount: &str, mode: u32) {
        fs::create_dir_all(self.shared(mount)).unwrap();
        fs::set_permissions(self.shared(mount), PermissionsExt::from_mode(mode)).unwrap();
    }

    /// Starts the victim, and waits until its command says "ready".
    pub fn start(&self) -> Victim<'_> {
        let mut init = match self.is_rootless {
            true => in_place(self.command()),
            false => as_pid_1(self.command()),
        };
        init.wait_for("ready");
        let pid = match self.is_rootless {
            true => poll_until("it has a child", || children(init.pid).first().copied()),
            false => init.pid,
        };
        Victim { pod: self, init, pid }
    }

    /// Starts the victim, whose preparation hangs until it is released.
    pub fn preparing(&self, hang: &Hang) -> Victim<'_> {
        let init = hanging(self.command(), true, hang);
        hang.wait();
        Victim { pod: self, pid: init.pid, init }
    }

    fn command(&self) -> Command {
        let mut command = rdma_init(["--", "/bin/busybox", "sh", "-c", "echo ready; exec sleep 1000"]);
        of_container(&mut command);
        command.env("RDMA_INIT_SET", SET);
        let command = inside(&command);
        let outside = "exec /usr/bin/unshare --user --map-root-user --mount --pid --fork --kill-child";
        match self.is_rootless {
            true => after(outside, after(&self.setup(), command)),
            false => after(&self.setup(), command),
        }
    }

    /// Returns a script that makes the victim's root and enters it. Its arguments are the program's path
    /// outside and the program's arguments.
    fn setup(&self) -> String {
        let root = self.folder.path().display();
        let mut script = format!(
            "root={root}; /bin/mount -t tmpfs -o mode=755 none $root; cd $root
             mkdir -p bin opt proc run tmp etc sys dev/shm; chmod 1777 tmp dev/shm
             cp /bin/busybox bin; for name in cat env sh sleep; do ln -s busybox bin/$name; done
             touch {program}; /bin/mount --bind {binary} {program}
             ",
            program = relative(Path::new(PROGRAM)),
            binary = binary().display(),
        );
        for mount in &self.mounts {
            script.push_str(&format!(
                "mkdir -p {}; /bin/mount --bind {} {}\n",
                relative(Path::new(mount)),
                self.shared(mount).display(),
                relative(Path::new(mount))
            ));
        }
        if self.is_read_only {
            script.push_str("/bin/mount -o remount,ro $root; \n");
        }
        let user = match self.is_rootless {
            true => String::new(),
            false => format!("--userspec={0}:{0}", self.user),
        };
        script.push_str(&format!("/bin/mount -t proc none proc; exec /usr/sbin/chroot {user} ."));
        script
    }
}

/// The program's path in the container. It is outside the directories that containers share, because the
/// build directory may be one of them, such as `/tmp`.
pub const PROGRAM: &str = "/opt/rdma-init";

/// Returns this command with the program's path in the container.
fn inside(command: &Command) -> Command {
    let mut inside = Command::new(PROGRAM);
    let environment = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    inside.args(command.get_args()).env_clear().envs(environment);
    inside
}

/// The container that the tests attack.
pub struct Victim<'a> {
    pod: &'a Pod,
    pub init: Running,
    /// The process number of the victim's PID 1, as seen from here.
    pub pid: i32,
}

/// The variables that an entering process got, and its messages.
#[derive(Debug)]
pub struct Got {
    pub variables: Vec<String>,
    pub said: String,
}

impl Got {
    /// Checks that, of the variables that the tests examine, the process got exactly these, sorted by name.
    #[track_caller]
    pub fn expect(self, wanted: &[&str]) -> Got {
        assert_eq!(self.variables, wanted, "{self:#?}");
        self
    }

    #[track_caller]
    pub fn expect_said(self, parts: &[&str]) -> Got {
        let missing: Vec<_> = parts.iter().filter(|part| !self.said.contains(**part)).collect();
        assert!(missing.is_empty(), "{missing:?} is not in {self:#?}");
        self
    }
}

impl Victim<'_> {
    /// Returns what `exec` gives to an entering process of this user.
    #[track_caller]
    pub fn exec(&self, user: u32) -> Got {
        got(self.enter(user, &["exec", "--", "/bin/busybox", "env"]))
    }

    /// Returns what `env` prints for such a process.
    #[track_caller]
    pub fn env(&self, user: u32) -> Got {
        got(self.enter(user, &["env", "--format", "docker"]))
    }

    /// Makes the command that runs the program in the victim, as `kubectl exec` does.
    pub fn enter(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let init = self.pid.to_string();
        command.args(["--target", &init, "--pid", "--mount", "--root", "--wd=/"]);
        match self.pod.is_rootless {
            true => command.args(["--user", "--preserve-credentials"]),
            false => command.args(["--setuid", &user.to_string(), "--setgid", &user.to_string()]),
        };
        command.arg(PROGRAM).args(arguments).env_clear();
        of_container(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the path of a file of the victim, as seen from here.
    pub fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }

    /// Returns a forged state. It has everything by which a start recognizes its own state, and the evil
    /// variables.
    pub fn forged(&self) -> Value {
        let link = |kind: &str| {
            let link = fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).unwrap();
            link.to_str().unwrap().to_owned()
        };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        json!({"schema": "rdma-init/plan/1", "run": {
            "identity": {
                "boot": boot.trim_end(),
                "namespace": link("pid"),
                "mounts": link("mnt"),
                "init_started": started(self.pid),
            },
            "by_init": true,
            "since": 1,
            "pid": 1,
            "pid_started": null,
            "headline": "forged",
            "self_test": null,
            "filled": EVIL.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect::<serde_json::Map<_, _>>(),
            "inherited": {},
        }})
    }

    /// Lets the other container put this state into every directory in the shared places where the program
    /// may look for it.
    pub fn plant(&self, state: &Value) {
        let mounts = fs::read_link(format!("/proc/{}/ns/mnt", self.pid)).unwrap();
        let number: String = mounts.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
        for mount in &self.pod.mounts {
            let shared = self.pod.shared(mount);
            let names = match *mount {
                "/run" => vec!["rdma-init".to_owned()],
                "/run/rdma-init" => vec![".".to_owned()],
                _ => ["0", "1234", "1235"]
                    .iter()
                    .flat_map(|user| [format!("rdma-init-{user}"), format!("rdma-init-{user}-{number}")])
                    .collect(),
            };
            for name in names {
                // Existing files are overwritten in place if the other container may write to them.
                let script = "mkdir -p \"$0\" && chmod 755 \"$0\"; cat >\"$0/plan.json\" && chmod 644 \"$0/plan.json\"";
                beside(script, &shared.join(name), state.to_string().as_bytes());
            }
        }
    }
}

/// Runs a script in the other container, with the path as `$0`.
pub fn beside(script: &str, path: &Path, input: &[u8]) {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "setpriv", "--no-new-privs"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all", "sh", "-c", script]).arg(path);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // A script that may not write does not read its input, either.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait().unwrap();
}

/// Runs an entering process to its end. Returns what it got.
#[track_caller]
pub fn got(mut command: Command) -> Got {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let concern = |line: &&str| {
        line.split('=')
            .next()
            .is_some_and(|name| name.starts_with("NCCL_") || EVIL.iter().any(|(evil, _)| *evil == name))
    };
    let mut variables: Vec<String> = stdout.lines().filter(concern).map(str::to_owned).collect();
    variables.sort();
    Got { variables, said }
}

/// Sets what the container's image would set.
fn of_container(command: &mut Command) {
    command.env_remove("RDMA_INIT_STATE_DIR").env_remove("RDMA_INIT_WRITE_NCCL_CONF");
    command.env("PATH", "/usr/bin:/bin").env_remove("RDMA_INIT_CONFIG");
    // A debug build on a busy machine needs longer.
    command.env("RDMA_INIT_PREPARE_TIMEOUT", "30s");
}

fn relative(path: &Path) -> String {
    path.display().to_string().trim_start_matches('/').to_owned()
}

/// Returns when a process was started, in clock ticks since the boot.
fn started(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    text.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap()
}
