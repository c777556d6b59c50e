//! The Docker engine, the images and networks of this run, and the containers.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use nix::libc;

use crate::support::{DEADLINE, binary, repository, skip};

/// The engine of this run; `None` where none answers, which skips the test.
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
    /// Marks everything that this run makes. Images that are named so, with a tag, are
    /// removed in the end.
    pub run: String,
    /// `DOCKER_HOST`, where `docker` does not find the engine by itself.
    host: Option<String>,
    /// The program before a busybox.
    pub image: String,
    /// The program, and nothing else.
    pub bare_image: String,
    containers: AtomicU32,
}

/// What the image's commands are; all of them are busybox.
const COMMANDS: &[&str] = &[
    "cat", "env", "grep", "ls", "mkdir", "mkfifo", "mknod", "mount", "rm", "setsid", "sh", "sleep", "stty",
    "true",
];

impl Engine {
    fn prepare() -> Result<Engine, String> {
        let setup = repository("tests/docker/setup.sh");
        let setup = Command::new(setup).stderr(Stdio::inherit()).output().map_err(|e| e.to_string())?;
        if !setup.status.success() {
            return Err("there is no Docker engine, and none can be set up (see above)".to_owned());
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
        fs::copy(binary(), root.join("rdma-init")).unwrap();
        fill(&root);
        fs::write(
            folder.path().join("Dockerfile"),
            "FROM scratch\nCOPY root /\nENTRYPOINT [\"/rdma-init\", \"--\"]\n",
        )
        .unwrap();
        // The older builder is in every version and needs no plug-in.
        let mut build = self.command(["build", "--quiet", "--label", &self.run, "--tag", image]);
        build.env("DOCKER_BUILDKIT", "0").arg(folder.path());
        self.finish(build).expect_code(0);
    }

    /// `docker`, without a command yet.
    pub fn client(&self) -> Command {
        self.command::<&str>([])
    }

    fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new("docker");
        command.args(arguments).stdin(Stdio::null());
        command.envs(self.host.as_ref().map(|host| ("DOCKER_HOST", host)));
        command
    }

    /// A `docker` command that has to come to its end soon.
    pub fn docker<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ended {
        self.finish(self.command(arguments))
    }

    fn finish(&self, command: Command) -> Ended {
        Attached::start(command).wait()
    }

    /// `docker run` with options, up to its end.
    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(&self, options: impl IntoIterator<Item = A>, command: &[&str]) -> Ended {
        self.start(options, command).wait()
    }

    /// As [`Engine::run`], where the engine may be unable to.
    #[track_caller]
    pub fn try_run<A: AsRef<OsStr>>(&self, options: impl IntoIterator<Item = A>, command: &[&str]) -> Ended {
        self.start(options, command).end()
    }

    /// `docker run` with options, and this script for the container's shell.
    #[track_caller]
    pub fn script<A: AsRef<OsStr>>(&self, options: impl IntoIterator<Item = A>, script: &str) -> Ended {
        self.run(options, &["sh", "-c", script])
    }

    /// `docker run` with options, of the program as PID 1 once the container's
    /// root has prepared something.
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

    /// `docker run` with options; goes on running.
    #[track_caller]
    pub fn start<A: AsRef<OsStr>>(
        &self,
        options: impl IntoIterator<Item = A>,
        command: &[&str],
    ) -> Container<'_> {
        self.start_image(&self.image, options, command)
    }

    /// The same of another image.
    pub fn start_image<A: AsRef<OsStr>>(
        &self,
        image: &str,
        options: impl IntoIterator<Item = A>,
        command: &[&str],
    ) -> Container<'_> {
        self.launch(self.new_name(), image, options, command)
    }

    /// The same of a name that others have to know.
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

    /// `docker run` up to and without the image.
    pub fn run_command<A: AsRef<OsStr>>(&self, name: &str, options: impl IntoIterator<Item = A>) -> Command {
        let mut docker = self.command(["run", "--name", name, "--label", &self.run]);
        docker.args(options);
        docker
    }

    /// `docker run` of the image that holds the program alone.
    pub fn run_bare<A: AsRef<OsStr>>(&self, options: impl IntoIterator<Item = A>, command: &[&str]) -> Ended {
        self.start_image(&self.bare_image, options, command).wait()
    }

    /// A container that is made and not started.
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

    /// A container that another command starts; it is removed in the end.
    pub fn named(&self) -> Container<'_> {
        Container { engine: self, name: self.new_name(), attached: None }
    }

    fn new_name(&self) -> String {
        format!("{}-{}", self.run, self.containers.fetch_add(1, Ordering::Relaxed))
    }

    /// A network with a default route. All tests share it, each with addresses
    /// of its own.
    pub fn network(&self) -> &Network {
        static NETWORK: OnceLock<Network> = OnceLock::new();
        NETWORK.get_or_init(|| Network::new(self, "front", &[]))
    }

    /// Two networks that lead nowhere else, as those of RDMA rails.
    pub fn rails(&self) -> &[Network; 2] {
        static RAILS: OnceLock<[Network; 2]> = OnceLock::new();
        RAILS.get_or_init(|| ["rail1", "rail2"].map(|name| Network::new(self, name, &["--internal"])))
    }
}

/// Removes whatever this run has made when the test program ends, in whichever
/// way, which closes the pipe. A run that is not killed waits for it.
fn start_sweeper(run: &str, host: Option<&str>) {
    let script = "cat
        exec >/dev/null
        docker ps --all --quiet --filter label=$0 | xargs -r docker rm --force --volumes
        docker network ls --quiet --filter label=$0 | xargs -r docker network rm
        docker images --format '{{.Repository}}:{{.Tag}}' $0 | xargs -r docker rmi --force";
    let mut command = Command::new("sh");
    // Out of reach of a Ctrl-C for the tests.
    command.args(["-c", script, run]).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    command.envs(host.map(|host| ("DOCKER_HOST", host)));
    *SWEEPER.lock().unwrap() = Some(command.spawn().unwrap());
    // SAFETY: the function is a plain one. There is no other way to have something
    // done after the last test: what is static is never dropped.
    unsafe { libc::atexit(sweep) };
}

static SWEEPER: Mutex<Option<Child>> = Mutex::new(None);

extern "C" fn sweep() {
    if let Ok(Some(mut sweeper)) = SWEEPER.lock().map(|mut sweeper| sweeper.take()) {
        drop(sweeper.stdin.take());
        let _ = sweeper.wait();
    }
}

/// A network with a subnet of its own.
pub struct Network {
    pub name: String,
    subnet: [u8; 3],
    next: AtomicU32,
}

impl Network {
    fn new(engine: &Engine, name: &str, options: &[&str]) -> Network {
        let name = format!("{}-{name}", engine.run);
        // The addresses of RFC 2544, which are nobody's; runs at the same time
        // must not take the same.
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
        for attempt in 0..512 {
            let [.., block, third] = ((start + attempt) % 512).to_be_bytes();
            let subnet = [198, 18 + block, third];
            let range = format!("{}.{}.{}.0/24", subnet[0], subnet[1], subnet[2]);
            let arguments = ["network", "create", "--label", &engine.run, "--subnet", &range];
            let made = engine.docker(arguments.iter().chain(options).chain(&[name.as_str()]));
            if made.code == Some(0) {
                return Network { name, subnet, next: AtomicU32::new(10) };
            }
            assert!(made.stderr.contains("overlaps"), "{made:#?}");
        }
        panic!("every subnet is taken");
    }

    /// An address that nobody has.
    pub fn address(&self) -> Ipv4Addr {
        let host = u8::try_from(self.next.fetch_add(1, Ordering::Relaxed)).expect("a /24 is enough");
        self.at(host)
    }

    /// The address that the host of the containers is made to have.
    pub fn host_address(&self) -> Ipv4Addr {
        self.at(2)
    }

    fn at(&self, host: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, host)
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// A line on standard error that holds all of this. What the wording is,
    /// other suites pin down.
    #[track_caller]
    pub fn expect_line<const N: usize>(self, parts: [&str; N]) -> Ended {
        let holds_all = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(self.stderr.lines().any(holds_all), "no line holds {parts:?}: {self:#?}");
        self
    }

    #[track_caller]
    pub fn expect_said(self, text: &str) -> Ended {
        self.expect_line([text])
    }

    #[track_caller]
    pub fn expect_unsaid(self, text: &str) -> Ended {
        assert!(!self.stderr.contains(text), "{text:?} is in {self:#?}");
        self
    }

    #[track_caller]
    pub fn expect_stdout(self, text: &str) -> Ended {
        assert_eq!(self.stdout, text, "{self:#?}");
        self
    }

    /// The value of a variable that the command `env` has printed.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether the engine, and not the program, failed. Both use the code 125.
    pub fn engine_failed(&self) -> bool {
        self.code == Some(125) && self.stderr.contains("docker: ")
    }
}

/// A process whose output is read.
struct Attached {
    child: Child,
    lines: Receiver<String>,
    stdout: String,
    stderr: JoinHandle<String>,
}

impl Attached {
    #[track_caller]
    fn start(mut command: Command) -> Attached {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdout, mut stderr) =
            (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok_and(|length| length > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let stderr = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Attached { child, lines, stdout: String::new(), stderr }
    }

    /// Reads on until a line is this text.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + DEADLINE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.stdout += &line;
                    if line.trim_end() == text {
                        return;
                    }
                }
                Err(error) => {
                    let _ = self.child.kill();
                    panic!("{text:?} did not come ({error}); so far: {:?}", self.stdout);
                }
            }
        }
    }

    /// Reads on to the end.
    #[track_caller]
    fn wait(mut self) -> Ended {
        let until = Instant::now() + DEADLINE;
        let in_time = loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.stdout += &line,
                Err(error) => break error == RecvTimeoutError::Disconnected,
            }
        };
        if !in_time {
            let _ = self.child.kill();
        }
        let status = self.child.wait().unwrap();
        let stderr = self.stderr.join().unwrap();
        let ended = Ended { code: status.code(), stdout: self.stdout, stderr };
        assert!(in_time, "does not end: {ended:#?}");
        ended
    }
}

/// A container; removed, running or not, when this goes.
pub struct Container<'a> {
    engine: &'a Engine,
    pub name: String,
    attached: Option<Attached>,
}

impl Container<'_> {
    /// Attaches this container, which must be new, to one more network.
    pub fn connect(&self, network: &Network, address: Ipv4Addr) {
        let address = address.to_string();
        self.docker(["network", "connect", "--ip", &address, &network.name], &[]).expect_code(0);
    }

    /// Starts a container that was created, or that has ended.
    pub fn start(&mut self) {
        let command = self.engine.command(["start", "--attach", &self.name]);
        self.attached = Some(Attached::start(command));
    }

    /// Waits for a line of the command.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        self.attached.as_mut().unwrap().wait_for(text);
    }

    /// A process of our machine: the client that is attached.
    pub fn client(&self) -> u32 {
        self.attached.as_ref().unwrap().child.id()
    }

    /// Waits for the end of the container.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        self.wait_again()
    }

    /// As [`Container::wait`], for a container that is to be started once more.
    #[track_caller]
    pub fn wait_again(&mut self) -> Ended {
        let ended = self.end();
        assert!(!ended.engine_failed(), "the engine failed: {ended:#?}");
        ended
    }

    #[track_caller]
    fn end(&mut self) -> Ended {
        self.attached.take().unwrap().wait()
    }

    /// `docker COMMAND... CONTAINER MORE...`
    pub fn docker<const N: usize>(&self, command: [&str; N], more: &[&str]) -> Ended {
        self.engine.docker(command.iter().chain(&[self.name.as_str()]).chain(more))
    }

    pub fn exec(&self, command: &[&str]) -> Ended {
        self.docker(["exec"], command)
    }

    /// `docker kill --signal`.
    pub fn signal(&self, signal: &str) {
        self.docker(["kill", "--signal", signal], &[]).expect_code(0);
    }

    /// `docker inspect --format`.
    pub fn inspect(&self, format: &str) -> String {
        let said = self.docker(["inspect", "--format", format], &[]).expect_code(0).stdout;
        said.trim_end().to_owned()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = self.engine.command(["rm", "--force", "--volumes", &self.name]).output();
        if let Some(attached) = &mut self.attached {
            let _ = attached.child.kill();
            let _ = attached.child.wait();
        }
    }
}

/// A file for a container to mount, and the folder that goes with it.
pub fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}
