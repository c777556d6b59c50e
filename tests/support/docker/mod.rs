//! The Docker engine, and the images, networks and containers that this run creates.

mod attached;
mod container;
pub mod host;
mod network;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::SystemTime;

use nix::libc;

use self::attached::Attached;
pub use self::attached::Ended;
pub use self::container::Container;
pub use self::network::Network;
use super::executable::copy_of_binary;
use super::{repository, skip};

/// Returns this run's engine; `None` if no engine answers, in which case the test is skipped.
pub fn engine() -> Option<&'static Engine> {
    static ENGINE: LazyLock<Result<Engine, String>> = LazyLock::new(Engine::prepare);
    match &*ENGINE {
        Ok(engine) => Some(engine),
        Err(why) => {
            skip(why);
            None
        }
    }
}

pub struct Engine {
    /// The label of everything that this run creates. At the end, images with this name and any tag are
    /// removed.
    pub run: String,
    /// `DOCKER_HOST`, if `docker` does not find the engine by itself.
    host: Option<String>,
    /// An image that contains the program and a busybox.
    pub image: String,
    /// An image that contains only the program.
    pub bare_image: String,
    containers: AtomicU32,
}

/// The commands in the image; all of them are busybox.
const COMMANDS: &[&str] = &[
    "cat", "env", "grep", "ls", "mkdir", "mkfifo", "mknod", "mount", "rm", "setsid", "sh", "sleep", "stty",
    "true",
];

impl Engine {
    fn prepare() -> Result<Engine, String> {
        let setup = repository("tests/docker/setup.sh");
        let setup = Command::new(setup).stderr(Stdio::inherit()).output().map_err(|e| e.to_string())?;
        if !setup.status.success() {
            return Err(
                "there is no Docker engine with a default network, and none can be set up (see above)"
                    .to_owned(),
            );
        }
        let said = String::from_utf8_lossy(&setup.stdout);
        let host = said.lines().find_map(|line| line.strip_prefix("DOCKER_HOST=")).map(str::to_owned);

        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let run = format!("rdma-init-test-{}-{:x}", std::process::id(), since_epoch.subsec_nanos());
        start_sweeper(&run, host.as_deref());
        let engine = Engine {
            image: format!("{run}:shell"),
            bare_image: format!("{run}:bare"),
            containers: AtomicU32::new(0),
            run,
            host,
        };
        engine.build(&engine.bare_image, |_| {});
        engine.build(&engine.image, |root| {
            let bin = root.join("bin");
            fs::create_dir(&bin).unwrap();
            fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
            for command in COMMANDS {
                symlink("busybox", bin.join(command)).unwrap();
            }
        });
        Ok(engine)
    }

    fn build(&self, image: &str, fill: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        copy_of_binary(&root);
        fill(&root);
        fs::write(
            folder.path().join("Dockerfile"),
            "FROM scratch\nCOPY root /\nENTRYPOINT [\"/rdma-init\", \"--\"]\n",
        )
        .unwrap();
        // Every version of Docker includes the older builder, which needs no plug-in.
        let mut build = self.command(["build", "--quiet", "--label", &self.run, "--tag", image]);
        build.env("DOCKER_BUILDKIT", "0").arg(folder.path());
        self.finish(build).expect_code(0);
    }

    /// Returns the command `docker`, without a subcommand yet.
    pub fn client(&self) -> Command {
        self.command::<&str>([])
    }

    fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new("docker");
        command.args(arguments).stdin(Stdio::null());
        command.envs(self.host.as_ref().map(|host| ("DOCKER_HOST", host)));
        command
    }

    /// Runs a `docker` command that must end soon.
    pub fn docker<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ended {
        self.finish(self.command(arguments))
    }

    fn finish(&self, command: Command) -> Ended {
        Attached::start(command).wait()
    }

    /// Runs `docker run` with options, and waits for its end.
    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(&self, options: impl IntoIterator<Item = A>, command: &[&str]) -> Ended {
        self.start(options, command).wait()
    }

    /// Does the same as [`Engine::run`] for a container that the engine may be unable to start.
    #[track_caller]
    pub fn try_run<A: AsRef<OsStr>>(&self, options: impl IntoIterator<Item = A>, command: &[&str]) -> Ended {
        self.start(options, command).end()
    }

    /// Runs a script in the shell of a new container, and waits for its end.
    #[track_caller]
    pub fn script<A: AsRef<OsStr>>(&self, options: impl IntoIterator<Item = A>, script: &str) -> Ended {
        self.run(options, &["sh", "-c", script])
    }

    /// Runs a new container in which root first does the preparation and then becomes the program, which
    /// stays PID 1.
    #[track_caller]
    pub fn after<'a>(
        &self,
        preparation: &str,
        options: impl IntoIterator<Item = &'a str>,
        program: &str,
    ) -> Ended {
        let options = options.into_iter().chain(["--entrypoint", "/bin/sh"]);
        self.run(options, &["-c", &format!("{preparation} && exec {program}")])
    }

    /// Starts `docker run` with options, without waiting for its end.
    #[track_caller]
    pub fn start<A: AsRef<OsStr>>(
        &self,
        options: impl IntoIterator<Item = A>,
        command: &[&str],
    ) -> Container<'_> {
        self.start_image(&self.image, options, command)
    }

    /// Does the same as [`Engine::start`] with another image.
    pub fn start_image<A: AsRef<OsStr>>(
        &self,
        image: &str,
        options: impl IntoIterator<Item = A>,
        command: &[&str],
    ) -> Container<'_> {
        self.launch(self.new_name(), image, options, command)
    }

    /// Does the same as [`Engine::start`] with a container name that other containers must know.
    #[track_caller]
    pub fn start_as<A: AsRef<OsStr>>(
        &self,
        name: &str,
        options: impl IntoIterator<Item = A>,
        command: &[&str],
    ) -> Container<'_> {
        self.launch(name.to_owned(), &self.image, options, command)
    }

    #[track_caller]
    fn launch<A: AsRef<OsStr>>(
        &self,
        name: String,
        image: &str,
        options: impl IntoIterator<Item = A>,
        command: &[&str],
    ) -> Container<'_> {
        let mut docker = self.run_command(&name, options);
        docker.arg(image).args(command);
        Container { engine: self, name, attached: Some(Attached::start(docker)) }
    }

    /// Returns the command `docker run` with its options, without the image.
    pub fn run_command<A: AsRef<OsStr>>(&self, name: &str, options: impl IntoIterator<Item = A>) -> Command {
        let mut docker = self.command(["run", "--name", name, "--label", &self.run]);
        docker.args(options);
        docker
    }

    /// Runs `docker run` with the image that contains only the program, and waits for its end.
    pub fn run_bare<A: AsRef<OsStr>>(&self, options: impl IntoIterator<Item = A>, command: &[&str]) -> Ended {
        self.start_image(&self.bare_image, options, command).wait()
    }

    /// Creates a container without starting it.
    pub fn create<A: AsRef<OsStr>>(
        &self,
        options: impl IntoIterator<Item = A>,
        command: &[&str],
    ) -> Container<'_> {
        let name = self.new_name();
        let mut docker = self.command(["create", "--name", &name, "--label", &self.run]);
        docker.args(options).arg(&self.image).args(command);
        let container = Container { engine: self, name, attached: None };
        self.finish(docker).expect_code(0);
        container
    }

    /// Returns a container with a new name, which another command starts. It is removed at the end.
    pub fn named(&self) -> Container<'_> {
        Container { engine: self, name: self.new_name(), attached: None }
    }

    fn new_name(&self) -> String {
        format!("{}-{}", self.run, self.containers.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a network with a default route. All tests share it, and each test takes its own addresses from
    /// it.
    pub fn network(&self) -> &Network {
        static NETWORK: OnceLock<Network> = OnceLock::new();
        NETWORK.get_or_init(|| Network::new(self, "front", &[]))
    }

    /// Returns two networks without a route to anywhere else, like the networks of RDMA rails.
    pub fn rails(&self) -> &[Network; 2] {
        static RAILS: OnceLock<[Network; 2]> = OnceLock::new();
        RAILS.get_or_init(|| ["rail1", "rail2"].map(|name| Network::new(self, name, &["--internal"])))
    }
}

/// Starts a process that removes everything that this run created. It does so when the test program ends in
/// any way, which closes its pipe. A run that is not killed waits for it.
fn start_sweeper(run: &str, host: Option<&str>) {
    let script = "cat
        exec >/dev/null
        docker ps --all --quiet --filter label=$0 | xargs -r docker rm --force --volumes
        docker network ls --quiet --filter label=$0 | xargs -r docker network rm
        docker images --format '{{.Repository}}:{{.Tag}}' $0 | xargs -r docker rmi --force";
    let mut command = Command::new("sh");
    // A Ctrl-C for the tests must not reach this process, so it gets its own process group.
    command.args(["-c", script, run]).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    command.envs(host.map(|host| ("DOCKER_HOST", host)));
    *SWEEPER.lock().unwrap() = Some(command.spawn().unwrap());
    // SAFETY: the function is a plain one. There is no other way to do something after the last
    // test, because statics are never dropped.
    unsafe { libc::atexit(sweep) };
}

static SWEEPER: Mutex<Option<Child>> = Mutex::new(None);

extern "C" fn sweep() {
    if let Ok(Some(mut sweeper)) = SWEEPER.lock().map(|mut sweeper| sweeper.take()) {
        drop(sweeper.stdin.take());
        let _ = sweeper.wait();
    }
}

/// Writes a file for a container to mount. Returns its path and the directory that contains it; dropping the
/// directory removes the file.
pub fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}
