//! Tests what the program says about an image's NCCL, libibverbs and providers. The real libraries are
//! mounted into a container that contains nothing else.

use crate::support::docker::host::Host;
use crate::support::docker::{Ended, Engine, engine};
use crate::support::repository;

const RELEASE: &str = "2.27.7";

/// The dynamic loader searches this directory by default.
#[cfg(target_arch = "x86_64")]
const FOLDER: &str = "/usr/lib/x86_64-linux-gnu";
#[cfg(target_arch = "aarch64")]
const FOLDER: &str = "/usr/lib/aarch64-linux-gnu";

/// Runs a container with NCCL, one HCA with the driver mlx5_core, and these files of this machine at the same
/// paths.
fn run(engine: &Engine, paths: &[&str], more: &[&str], command: &[&str]) -> Ended {
    let host = Host::with_one_hca(engine).driver(0, "mlx5_core");
    let library = repository(format!("target/nccl/{RELEASE}/libnccl.so.2"));
    assert!(library.exists(), "there is no {}: `make test-setup` fetches it", library.display());
    let nccl = format!("{}:{FOLDER}/libnccl.so.2:ro", library.display());
    let mut options = host.options(&["--volume", &nccl]).iter().map(|o| (*o).to_owned()).collect::<Vec<_>>();
    for path in paths {
        options.extend(["--volume".to_owned(), format!("{path}:{path}:ro")]);
    }
    // NCCL is large, and this machine may have to read it from a busy disk.
    let more = [&["--env", "RDMA_INIT_PREPARE_TIMEOUT=10m"], more].concat();
    options.extend(more.iter().map(|option| (*option).to_owned()));
    engine.run(options.iter().map(String::as_str), command)
}

/// Returns the path of the file that the link to the mlx5 provider points to.
fn mlx5() -> String {
    let link = format!("{FOLDER}/libibverbs/libmlx5-rdmav34.so");
    std::fs::canonicalize(link).unwrap().display().to_string()
}

#[test]
fn the_release_in_the_image_is_the_one_that_is_predicted() {
    let Some(engine) = engine() else { return };
    let libibverbs = format!("{FOLDER}/libibverbs.so.1");
    let providers = format!("{FOLDER}/libibverbs");
    let paths = [libibverbs.as_str(), &providers, &mlx5(), "/etc/libibverbs.d"];
    let options = ["--env", "RDMA_INIT_REQUIRE_RDMA=true", "--cap-add", "IPC_LOCK"];
    run(engine, &paths, &options, &["env"])
        .expect_line(["NCCL", RELEASE, "will use mlx5_0, RoCE v2, GID index 5, bootstrap on eth0"])
        .expect_unsaid("libibverbs")
        .expect_code(0);
}

#[test]
fn without_libibverbs_the_job_would_run_on_tcp() {
    let Some(engine) = engine() else { return };
    run(engine, &[], &[], &["true"])
        .expect_line(["NCCL", RELEASE, "will use TCP on eth0 (the image has no libibverbs)"])
        .expect_line(["error:", "no libibverbs that NCCL can load", "Failed to open libibverbs.so[.1]"])
        .expect_line(["fix:", "libibverbs1"])
        .expect_code(0);
    run(engine, &[], &["--env", "RDMA_INIT_REQUIRE_RDMA=true"], &["true"])
        .expect_said("RDMA is required (require-rdma). NCCL will not use the RDMA devices: the image has no libibverbs")
        .expect_code(121);
}

#[test]
fn without_the_provider_or_its_file_nccl_sees_no_hca() {
    let Some(engine) = engine() else { return };
    let libibverbs = format!("{FOLDER}/libibverbs.so.1");
    let providers = format!("{FOLDER}/libibverbs");
    let error = |paths: &[&str], what: &str| {
        run(engine, paths, &[], &["true"])
            .expect_line(["error:", "The provider mlx5 of libibverbs", what, "NCCL does not see mlx5_0"])
            .expect_line(["NCCL", RELEASE, "will use TCP"])
            .expect_code(0);
    };
    error(&[&libibverbs], "is not in the image");
    error(&[&libibverbs, &providers, &mlx5()], "no file in /etc/libibverbs.d names it");
    // A dangling link is not a library.
    error(&[&libibverbs, &providers, "/etc/libibverbs.d"], "its library is not in the image");
}
