//! Runs NCCL itself in a container. A shell without any knowledge of rdma-init starts it.

use std::path::Path;

use crate::support::docker::engine;
use crate::support::docker::host::Host;
use crate::support::nccl::{driver, some};
use crate::support::poll_until;

/// Debian's library directory, and the path that programs name as their loader.
#[cfg(target_arch = "x86_64")]
const LIBRARIES: &str = "/lib/x86_64-linux-gnu";
#[cfg(target_arch = "x86_64")]
const LOADER: &str = "/lib64";
#[cfg(target_arch = "aarch64")]
const LIBRARIES: &str = "/lib/aarch64-linux-gnu";
#[cfg(target_arch = "aarch64")]
const LOADER: &str = "/lib/ld-linux-aarch64.so.1";

/// Returns for each library the interface on which NCCL bootstraps. The container's first interface is a
/// rail, and the second one has the default route. `option` is an additional option for the engine.
fn bootstrap(option: &[&str]) -> Option<Vec<String>> {
    let engine = engine()?;
    let (front, rail) = (engine.network(), &engine.rails()[0]);
    let (own, address) = (rail.address(), front.address());
    let host = Host::new().on(rail, own).hca(1, "eth0", rail, own).allot(1);
    let libraries = some(&["2.18.3", "2.23.4"]);
    let folder = driver();
    let volumes = [
        format!("{}:/nccl:ro", folder.parent().unwrap().display()),
        format!("{LIBRARIES}:{LIBRARIES}:ro"),
        format!("{LOADER}:{LOADER}:ro"),
    ];
    let mut options = host.options(option);
    options.extend(volumes.iter().flat_map(|volume| ["--volume", volume]));
    options.extend(["--entrypoint", "/bin/sh"]);
    // The second network is attached later, because the engine would choose the order of networks that exist
    // at the start.
    let script =
        "mkfifo /go; echo first; read -r _ </go; exec /rdma-init -- sh -c 'echo ready; exec sleep 1000'";
    let mut container = engine.start(options, &["-c", script]);
    container.wait_for("first");
    container.connect(front, address);
    container.exec(&["sh", "-c", "echo >/go"]).expect_code(0);
    container.wait_for("ready");
    let found = libraries.iter().map(|library| {
        let script = format!(
            "printf 'ask bootstrap\\nrun\\n' | /nccl/build/driver started /nccl/{}/libnccl.so.2 {}",
            library.version,
            library.symbols().join(" ")
        );
        // The engine rarely loses what a command of `docker exec` has printed, all of it (moby issue 27289).
        let told = poll_until("the driver's answer", || {
            let ended = container.exec(&["sh", "-c", &script]).expect_code(0);
            (!ended.stdout.is_empty()).then_some(ended)
        });
        // The driver prints: bootstrap CODE LOG-START LOG-END NAME-IN-HEX ADDRESS
        let line = told.stdout.lines().find(|line| line.starts_with("bootstrap "));
        let line = line.unwrap_or_else(|| panic!("{told:#?}"));
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!((words[1], words.len()), ("0", 6), "{told:#?}");
        let places = [("x65746830", own, "eth0"), ("x65746831", address, "eth1")];
        let place = places.iter().find(|(hex, at, _)| words[4..] == [(*hex).to_owned(), at.to_string()]);
        place.unwrap_or_else(|| panic!("{line}")).2.to_owned()
    });
    Some(found.collect())
}

#[test]
fn nccl_in_a_plain_shell_takes_what_was_chosen() {
    assert!(Path::new(LIBRARIES).exists(), "this machine has its libraries elsewhere");
    let Some(found) = bootstrap(&[]) else { return };
    assert_eq!(found, vec!["eth1"; found.len()]);
    // Without the file, NCCL would use another interface.
    let Some(found) = bootstrap(&["--env", "RDMA_INIT_WRITE_NCCL_CONF=false"]) else { return };
    assert_eq!(found, vec!["eth0"; found.len()]);
}
