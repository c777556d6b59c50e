//! Builds images from Dockerfiles of the repository.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::setup::{prepared, value};
use super::started::STANDINS;
use crate::support::docker::Engine;
use crate::support::{binary, poll_until, repository};

/// The image that a Dockerfile builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// Debian, with its package manager.
    Debian,
    /// A busybox with the stand-ins, without an entrypoint.
    Training,
    /// The same, but with an entrypoint.
    Serving,
}

impl Base {
    /// Returns the name of the image. `None` skips the test.
    pub fn image(self, engine: &Engine) -> Option<String> {
        Some(match self {
            Base::Debian => debian()?.to_owned(),
            Base::Training => stand_in(engine, "training", "ENTRYPOINT []\nCMD [\"python\", \"train.py\"]\n"),
            Base::Serving => {
                let starts = "ENTRYPOINT [\"python\", \"serve.py\"]\nCMD [\"--port\", \"8000\"]\n";
                stand_in(engine, "serving", starts)
            }
        })
    }
}

/// Images that stand in for those of a registry.
struct Bases {
    debian: String,
    rust: String,
}

fn bases() -> Option<&'static Bases> {
    static BASES: LazyLock<Option<Bases>> = LazyLock::new(|| {
        let images = prepared("images")?;
        Some(Bases { debian: value(&images, "DEBIAN"), rust: value(&images, "RUST") })
    });
    BASES.as_ref()
}

/// Returns the image that stands in for rust:1-bookworm.
pub fn rust() -> Option<&'static str> {
    Some(&bases()?.rust)
}

pub fn debian() -> Option<&'static str> {
    Some(&bases()?.debian)
}

/// A `docker build` whose steps stay in the engine's cache beyond this run, because some of them take
/// minutes. The image that an earlier run built under this name is removed.
pub struct Build<'e> {
    engine: &'e Engine,
    name: String,
    docker: Command,
}

impl<'e> Build<'e> {
    pub fn new(engine: &'e Engine, name: &str) -> Build<'e> {
        let mut docker = engine.client();
        // The older builder is in every version of Docker and needs no plugin.
        docker.env("DOCKER_BUILDKIT", "0").current_dir(repository(""));
        docker.args(["build", "--label", LABEL, "--tag", &format!("{}:{name}", engine.run)]);
        Build { engine, name: name.to_owned(), docker }
    }

    pub fn options<'a>(mut self, options: impl IntoIterator<Item = &'a str>) -> Build<'e> {
        self.docker.args(options);
        self
    }

    pub fn argument(mut self, name: &str, value: &str) -> Build<'e> {
        self.docker.args(["--build-arg", &format!("{name}={value}")]);
        self
    }

    /// Builds with a directory as the context, or with standard input if `context` is `-`. Returns the name
    /// of the image, and the builder's output.
    #[track_caller]
    pub fn of(mut self, context: &str, input: Option<Stdio>) -> (String, String) {
        // Between its end and its tag, a build of another test, also of another process, has an image without a name, which
        // must not be removed.
        let builds = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("builds")).unwrap();
        builds.lock_shared().unwrap();
        self.docker.arg(context).stdin(input.unwrap_or_else(Stdio::null));
        let output = self.docker.output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let last: Vec<_> = said.lines().rev().take(30).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        assert!(output.status.success(), "{}: {last:#?}", self.name);
        let image = format!("{}:{}", self.engine.run, self.name);
        self.engine.docker(["tag", &image, &format!("{LABEL}:{}", self.name)]).expect_code(0);
        builds.unlock().unwrap();
        if builds.try_lock().is_err() {
            // The last one of those that build removes what was built before.
            return (image, said);
        }
        let filter = format!("label={LABEL}");
        // The engine runs only one of these at a time, and rejects another test's in the meantime.
        poll_until("what was built before is removed", || {
            let ended = self.engine.docker(["image", "prune", "--force", "--filter", &filter]);
            let is_busy = ended.stderr.contains("already running");
            (!is_busy).then(|| ended.expect_code(0)).map(drop)
        });
        (image, said)
    }
}

/// The label of all images that this module builds, and the repository name of the images that it keeps.
const LABEL: &str = "rdma-init-examples";

static BUILT: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Builds an image, but only once in a run.
fn once(name: &str, build: impl FnOnce() -> String) -> String {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.entry(name.to_owned()).or_insert_with(build).clone()
}

/// Returns the image of docker/scratch.Dockerfile, which contains only the program under test.
pub fn program(engine: &Engine) -> String {
    scratch(engine, "scratch", &[])
}

/// Returns the same image under another name, built with these options.
pub fn scratch(engine: &Engine, name: &str, options: &[&str]) -> String {
    once(name, || {
        let binary = binary();
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(binary.parent().unwrap()).args(["-c", "rdma-init", "-C"]).arg(repository(""));
        tar.arg("docker/scratch.Dockerfile").stdout(Stdio::piped());
        let mut tar = tar.spawn().unwrap();
        let build = Build::new(engine, name).options(["--file", "docker/scratch.Dockerfile"]);
        let (image, _) =
            build.options(options.iter().copied()).of("-", Some(tar.stdout.take().unwrap().into()));
        assert!(tar.wait().unwrap().success());
        image
    })
}

/// Builds a training image with stand-ins. These lines of its Dockerfile define how it starts.
fn stand_in(engine: &Engine, name: &str, starts: &str) -> String {
    let copies: String = STANDINS.iter().map(|path| format!("COPY standin {path}\n")).collect();
    base(engine, name, &engine.image, &(copies + starts))
}

/// Builds an image on another one, with these lines of a Dockerfile.
pub fn base(engine: &Engine, name: &str, from: &str, lines: &str) -> String {
    once(name, || {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(repository("tests/examples/standin.sh"), folder.path().join("standin")).unwrap();
        std::fs::write(folder.path().join("Dockerfile"), format!("FROM {from}\n{lines}")).unwrap();
        Build::new(engine, name).of(folder.path().to_str().unwrap(), None).0
    })
}

/// Builds an example's Dockerfile. `None` skips the test.
pub fn example(engine: &Engine, dockerfile: &str, base: Base) -> Option<String> {
    let base = base.image(engine)?;
    let program = program(engine);
    let name = dockerfile.strip_prefix("examples/").unwrap().replace('/', "-");
    let folder = Path::new(dockerfile).parent().unwrap().to_str().unwrap();
    Some(once(&name, || {
        let build = Build::new(engine, &name).options(["--file", dockerfile]);
        build.argument("BASE", &base).argument("RDMA_INIT", &program).of(folder, None).0
    }))
}
