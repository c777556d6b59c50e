//! Builds the Dockerfiles and runs their images.

use std::process::{Command, Stdio};

use super::built::{Base, Build, base, debian, example, program, rust, scratch};
use super::started::{arguments, is_child_of_pid_1};
use crate::support::docker::host::Host;
use crate::support::docker::{Engine, engine};
use crate::support::is_all_wanted;

/// The examples that are Dockerfiles, and the image that each is built on.
pub const EXAMPLES: &[(&str, Base)] = &[
    ("examples/dockerfile/Dockerfile", Base::Training),
    ("examples/dockerfile/entrypoint.Dockerfile", Base::Serving),
    ("examples/mpijob/Dockerfile", Base::Debian),
    ("examples/pai-dlc/Dockerfile", Base::Debian),
    ("examples/torchrun/Dockerfile", Base::Training),
];

#[track_caller]
pub fn image(engine: &Engine, dockerfile: &str) -> Option<String> {
    let (dockerfile, base) = EXAMPLES.iter().find(|(name, _)| *name == dockerfile).unwrap();
    example(engine, dockerfile, *base)
}

/// Returns the files of an image, without those that the engine puts into every container.
fn files(engine: &Engine, image: &str) -> Vec<String> {
    let container = engine.named();
    engine.docker(["create", "--name", &container.name, image]).expect_code(0);
    let mut export = engine.client();
    let mut export = export.args(["export", &container.name]).stdout(Stdio::piped()).spawn().unwrap();
    let tar = Command::new("tar").arg("-t").stdin(export.stdout.take().unwrap()).output().unwrap();
    assert!(tar.status.success() && export.wait().unwrap().success());
    let listed = String::from_utf8(tar.stdout).unwrap();
    let engine_s = |file: &str| {
        file == ".dockerenv"
            || ["dev/", "etc/", "proc/", "sys/"].iter().any(|folder| file.starts_with(folder))
    };
    listed.lines().filter(|file| !engine_s(file)).map(str::to_owned).collect()
}

/// Checks that the image contains only the program, that COPY --from finds the program, and that it runs.
fn is_the_program_alone(engine: &Engine, image: &str) {
    assert_eq!(files(engine, image), ["rdma-init"]);
    let version = engine.start_image::<&str>(image, [], &["--version"]).wait().expect_code(0);
    assert_eq!(version.stdout, format!("rdma-init {}\n", env!("CARGO_PKG_VERSION")));
    let plan = engine.start_image::<&str>(image, [], &["env", "--facts", "demo:cce-roce"]).wait();
    assert!(plan.expect_code(0).stdout.contains("NCCL_IB_GID_INDEX"));
}

#[test]
fn a_binary_that_is_there_makes_an_image() {
    let Some(engine) = engine() else { return };
    is_the_program_alone(engine, &program(engine));
}

/// The build runs nothing from the image, so any machine can build it. The engine on a node checks the
/// architecture that the image declares.
#[test]
fn the_plain_builder_makes_the_image_of_an_architecture_that_is_named() {
    let Some(engine) = engine() else { return };
    for architecture in ["amd64", "arm64"] {
        let platform = format!("linux/{architecture}");
        // Both images use the same binary, but the builder's cache does not distinguish platforms.
        let options = ["--no-cache", "--platform", &platform];
        let image = scratch(engine, &format!("scratch-{architecture}"), &options);
        let inspect = ["image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", &image];
        assert_eq!(engine.docker(inspect).expect_code(0).stdout.trim(), platform);
    }
}

/// Lines of an image in which `make build` takes the program of another image instead of building one for minutes, if the
/// sources are there.
fn built(program: &str) -> String {
    let make = "case $1 in build) cargo metadata --offline --no-deps >/dev/null && folder=target/any-unknown-linux-gnu/release \
                && mkdir -p $folder && cp /rdma-init $folder ;; setup) test -f tests/setup.sh ;; esac";
    format!(
        "COPY --from={program} /rdma-init /\nRUN printf '%s\\n' '#!/bin/sh' '{make}' >/usr/local/bin/make && chmod +x /usr/local/bin/make\n"
    )
}

#[test]
fn a_clean_checkout_makes_an_image() {
    let Some(engine) = engine() else { return };
    let Some(rust) = rust() else { return };
    let quick = (!is_all_wanted()).then(|| base(engine, "rust-built", rust, &built(&program(engine))));
    let rust = quick.as_deref().unwrap_or(rust);
    let dockerfile = ["--file", "docker/Dockerfile"];
    let target = ["--target", "build"];
    // The stage that takes minutes gets its own name, so that it stays in the cache.
    Build::new(engine, "build").options(dockerfile).options(target).argument("BASE", rust).of(".", None);
    let (image, said) =
        Build::new(engine, "rdma-init").options(dockerfile).argument("BASE", rust).of(".", None);
    is_the_program_alone(engine, &image);
    // Neither target/ nor .git is sent to the engine.
    let sent = said.lines().find_map(|line| line.strip_prefix("Sending build context to Docker daemon"));
    let sent = sent.and_then(|text| text.split('\r').next_back()).unwrap().trim();
    let size = sent.strip_suffix("MB").map_or(0.0, |size| size.rsplit(' ').next().unwrap().parse().unwrap());
    assert!(size < 10.0 && !sent.ends_with("GB"), "{sent}");
}

#[test]
fn the_example_image_says_what_it_decided() {
    let Some(engine) = engine() else { return };
    let Some(debian) = debian() else { return };
    let program = program(engine);
    let build = Build::new(engine, "example").options(["--file", "docker/example.Dockerfile"]);
    let (image, _) = build.argument("BASE", debian).argument("RDMA_INIT", &program).of("docker", None);
    for user in ["0", "1000"] {
        let host = Host::with_one_hca(engine).driver(0, "mlx5_core");
        let options = host.options(&["--user", user]);
        let ended = engine.start_image(&image, options, &[]).wait().expect_code(0);
        assert!(ended.stdout.contains("RoCE, 1 port"), "{ended:#?}");
        assert!(ended.stdout.contains("the command runs"), "{ended:#?}");
        // The libraries that NCCL loads are in the image, so there is no finding about libibverbs.
        ended.expect_unsaid("libibverbs");
    }
}

#[test]
fn an_image_with_the_entrypoint_fills_in_whatever_it_starts() {
    let Some(engine) = engine() else { return };
    for dockerfile in ["examples/dockerfile/Dockerfile", "examples/torchrun/Dockerfile"] {
        let Some(image) = image(engine, dockerfile) else { return };
        let host = Host::with_one_hca(engine);
        let command = ["torchrun", "--nproc-per-node=8", "train.py"];
        let ended = engine.start_image(&image, host.options(&[]), &command).wait().expect_code(0);
        assert_eq!(arguments(&ended), command, "{dockerfile}");
        is_child_of_pid_1(&ended);
        assert_eq!(ended.variable("NCCL_IB_HCA"), Some("=mlx5_0"), "{dockerfile}");
    }
}

/// With arguments and without them, the image starts what its base image starts.
#[test]
fn an_image_starts_what_its_base_image_started() {
    let Some(engine) = engine() else { return };
    for (dockerfile, base) in EXAMPLES.iter().filter(|(path, _)| path.starts_with("examples/dockerfile/")) {
        let base = base.image(engine).unwrap();
        let image = image(engine, dockerfile).unwrap();
        let given: &[&str] = match dockerfile.ends_with("entrypoint.Dockerfile") {
            true => &["--model", "y"],
            false => &["python", "other.py", "--model", "y"],
        };
        for command in [&[], given] {
            let host = Host::with_one_hca(engine);
            let before = engine.start_image(&base, host.options(&[]), command).wait().expect_code(0);
            let after = engine.start_image(&image, host.options(&[]), command).wait().expect_code(0);
            assert_eq!(arguments(&after), arguments(&before), "{dockerfile} {command:?}");
            assert!(arguments(&before).len() > 1, "{before:#?}");
            is_child_of_pid_1(&after);
            assert_eq!(after.variable("NCCL_IB_HCA"), Some("=mlx5_0"), "{dockerfile}");
        }
    }
}

/// An image that was built from the wrong one of the two Dockerfiles, or without a CMD, prints what to
/// write instead.
#[test]
fn an_entrypoint_that_was_lost_is_hinted_at() {
    let Some(engine) = engine() else { return };
    let program = program(engine);
    let image = |name: &str, file: &str, base: Base| {
        let build = Build::new(engine, name).options(["--file", file]);
        let base = base.image(engine).unwrap();
        build.argument("BASE", &base).argument("RDMA_INIT", &program).of("examples/dockerfile", None).0
    };
    let wrong = image("wrong-form", "examples/dockerfile/Dockerfile", Base::Serving);
    engine
        .start_image::<&str>(&wrong, [], &["--model", "y"])
        .wait()
        .expect_code(127)
        .expect_line(["cannot run --model", "ENTRYPOINT [\"/rdma-init\", \"--\", \"OLD\", \"ENTRYPOINT\"]"]);
    let without = image("without-command", "examples/torchrun/Dockerfile", Base::Training);
    engine
        .start_image::<&str>(&without, [], &[])
        .wait()
        .expect_code(125)
        .expect_line(["there is nothing to run", "ENTRYPOINT resets the base image's CMD"]);
}
