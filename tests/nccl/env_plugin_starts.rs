//! Tests what a start does with the env plugin of rdma-init, in an image with the real NCCL.

use std::fs;
use std::path::Path;
use std::process::Command;

use rdma_init::env_plugin::{DECISION_FILE, LIBRARY, LIBRARY_FILE};
use rdma_init::libraries::nccl::env_plugin::VARIABLE;
use rdma_init::libraries::nccl::version::READS_ENV_PLUGIN;

use super::case::{Ask, Case};
use super::driver::Nccl;
use super::env_plugin_node::{asking, cut, marker};
use super::model::version;
use crate::support::nccl::{Library, libraries};

/// Returns a shell command that shows what NCCL gets in this shell.
fn show_itself(state: &Path) -> String {
    let program = env!("CARGO_BIN_EXE_rdma-init");
    format!("NCCL_ALGO=Ring /bin/sh -c '{program} plan --in $$ --state-dir {}'", state.display())
}

/// Returns the output of a command that a start runs, in an image with this NCCL.
fn with_command(library: &Path, state: &Path, command: &[&str]) -> String {
    with_user(library, state, &[], command)
}

/// Does the same with variables of the user.
fn with_user(library: &Path, state: &Path, of_user: &[(&str, &str)], command: &[&str]) -> String {
    let mut start = Command::new(env!("CARGO_BIN_EXE_rdma-init"));
    start.args(["--profile", "generic-roce", "--write-nccl-conf=false", "--state-dir"]).arg(state);
    start.arg("--").args(command).env_clear().env("RDMA_INIT_CONFIG", "/dev/null");
    start.env("LD_LIBRARY_PATH", library.parent().unwrap()).envs(of_user.iter().copied());
    let output = start.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns what a start passes to its command, in an image with this NCCL.
fn started(library: &Library, state: &Path, options: &[&str]) -> String {
    let output = start(library, state, options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn start(library: &Library, state: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-init"));
    command.args(["--profile", "generic-roce", "--write-nccl-conf=false", "--state-dir"]).arg(state);
    command.args(options).args(["--", "/usr/bin/env"]).env_clear();
    command.env("RDMA_INIT_CONFIG", "/dev/null").env("LD_LIBRARY_PATH", library.path.parent().unwrap());
    command
}

#[test]
fn a_start_leaves_the_library_where_nccl_asks_one() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // In other places, other containers may share the directory.
    if !rdma_init::state::mount::is_of_root(place.path()) {
        return;
    }
    for library in libraries() {
        let state = place.path().join(&library.version);
        let plugin = state.join(LIBRARY_FILE);
        let line = format!("{VARIABLE}={}\n", plugin.display());
        let asks = version(&library) >= READS_ENV_PLUGIN;
        let given = started(&library, &state, &[]);
        // Without a network, nothing is filled in.
        if !given.contains("\nNCCL_SOCKET_IFNAME=") && !given.starts_with("NCCL_SOCKET_IFNAME=") {
            eprintln!("SKIPPED: this machine has no default route");
            return;
        }
        assert_eq!(given.contains(&line), asks, "NCCL {}: {given}", library.version);
        assert_eq!(given.contains("\nNCCL_RDMA_INIT=1:"), asks, "{given}");
        assert_eq!(fs::read(&plugin).is_ok_and(|bytes| bytes == LIBRARY), asks);
        assert_eq!(fs::read_to_string(state.join("nccl.conf")).unwrap().contains(&line), asks);
        assert_eq!(state.join(DECISION_FILE).exists(), asks);
        if asks {
            // A crash of the machine may leave a file like this.
            cut(&plugin);
            started(&library, &state, &[]);
            assert!(fs::read(&plugin).is_ok_and(|bytes| bytes == LIBRARY));
            let of_user = [("NCCL_PROTO", "Simple")];
            let command = show_itself(&state);
            let shown = with_user(&library.path, &state, &of_user, &["/bin/sh", "-c", &command]);
            assert!(shown.contains("NCCL asks rdma-init's env plugin there"), "{shown}");
            assert!(shown.contains("  ours   NCCL_SOCKET_IFNAME"), "{shown}");
            assert!(shown.contains("  own    NCCL_ALGO"), "{shown}");
            assert!(shown.contains("  yours  NCCL_PROTO"), "{shown}");
        }
        if asks {
            let program = env!("CARGO_BIN_EXE_rdma-init");
            let status = format!("{program} status --state-dir {}", state.display());
            let file = plugin.display();
            let script = format!("{status}; truncate -s 5000 {file}; {status}; echo $?; rm {file}; {status}");
            let shown = with_command(&library.path, &state, &["/bin/sh", "-c", &script]);
            let lines: Vec<&str> = shown.lines().collect();
            assert!(lines[0].ends_with("filled in, and NCCL asks the env plugin"), "{shown}");
            let without = "NCCL does not ask the env plugin, because its file is gone or cut";
            assert!(lines[2].ends_with(without) && lines[5].ends_with(without), "{shown}");
            let runs = "the command runs";
            assert_eq!([lines[1], lines[3], lines[4], lines[6]], [runs, runs, "0", runs], "{shown}");
        }
        // The next start removes what this one left.
        for options in [["--nccl-env-plugin", "off"], ["--set", "NCCL_ENV_PLUGIN=none"]] {
            started(&library, &state, &[]);
            let given = started(&library, &state, &options);
            assert!(!given.contains(&line) && !plugin.exists(), "{options:?}: {given}");
            assert!(!state.join(DECISION_FILE).exists());
        }
    }
    let shared = tempfile::tempdir_in("/tmp").unwrap();
    let newest = libraries().pop().unwrap();
    let given = started(&newest, shared.path(), &[]);
    assert!(!given.contains(VARIABLE), "{given}");
}

/// Returns a directory for a state in which a start keeps the library; `None` if no start keeps it on this
/// machine.
fn place() -> Option<tempfile::TempDir> {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !rdma_init::state::mount::is_of_root(place.path()) {
        return None;
    }
    let library = asking().last()?;
    let given = started(&library, &place.path().join("probe"), &[]);
    if given.contains("\nNCCL_SOCKET_IFNAME=") || given.starts_with("NCCL_SOCKET_IFNAME=") {
        return Some(place);
    }
    eprintln!("SKIPPED: this machine has no default route");
    None
}

/// Returns a start within the command of a start.
fn within(state: &Path, options: &str) -> String {
    let program = env!("CARGO_BIN_EXE_rdma-init");
    let state = state.display();
    format!(
        "{program} --profile generic-roce --write-nccl-conf=false --state-dir {state} {options} -- /usr/bin/env"
    )
}

#[test]
fn a_start_within_a_start_that_is_to_use_none_silences_the_outer_ones() {
    let Some(place) = place() else { return };
    for library in asking() {
        let state = place.path().join(&library.version);
        let ours = format!("{VARIABLE}={}", state.join(LIBRARY_FILE).display());
        let named = |before: &str, options: &str| {
            let command = format!("{before} {}", within(&state, options));
            let given = with_command(&library.path, &state, &["/bin/sh", "-c", &command]);
            given.lines().find(|line| line.starts_with(VARIABLE)).map(str::to_owned)
        };
        assert_eq!(named("", "").as_deref(), Some(ours.as_str()), "NCCL {}", library.version);
        let off = "--nccl-env-plugin off";
        let none = format!("{VARIABLE}=none");
        assert_eq!(named("", off).as_deref(), Some(none.as_str()), "NCCL {}", library.version);
        // The conf file names it even for a command that has not inherited it.
        assert_eq!(named("env -u NCCL_ENV_PLUGIN", off).as_deref(), Some(none.as_str()));
        // rdma-init leaves another plugin alone.
        let other = "NCCL_ENV_PLUGIN=/opt/site/plugin.so";
        assert_eq!(named(&format!("env {other}"), off).as_deref(), Some(other));
        // For the command of the outer start, nothing has changed.
        assert!(state.join(LIBRARY_FILE).exists() && state.join(DECISION_FILE).exists());
    }
}

#[test]
fn a_mount_namespace_of_its_own_is_no_other_node() {
    let may_unshare = || Command::new("unshare").args(["--mount", "true"]).status();
    let Some(place) = place().filter(|_| may_unshare().is_ok_and(|status| status.success())) else { return };
    let Some(library) = asking().last() else { return };
    let state = place.path().join("state");
    let run = |before: &str| {
        let command = format!("exec 2>&1; {before} {}", within(&state, ""));
        with_command(&library.path, &state, &["/bin/sh", "-c", &command])
    };
    let copied = "another start, probably on another node";
    let own = run("unshare --mount");
    assert!(own.contains("\nNCCL_RDMA_INIT=1:") && !own.contains(copied), "{own}");
    assert!(own.contains("  set    NCCL_SOCKET_IFNAME") && !own.contains("yours  NCCL_"), "{own}");
    // A marker from another node is recognized there as well.
    let foreign = run("env NCCL_ALGO=Ring NCCL_RDMA_INIT=1:ffff:ALGO=7787478b unshare --mount");
    assert!(foreign.contains(copied) && !foreign.contains("NCCL_ALGO="), "{foreign}");
}

/// The image has one NCCL version where the loader searches, and another one in a Python package.
#[test]
fn of_two_releases_each_gets_its_own_and_an_old_one_turns_the_plugin_off() {
    let Some(place) = place() else { return };
    let given = |state: &str, first: &Library, second: &Library| -> Vec<(String, String)> {
        let folder = place.path().join(state).join("nvidia/nccl/lib");
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(second.path.canonicalize().unwrap(), folder.join("libnccl.so.2")).unwrap();
        let site = place.path().join(state);
        let mut command = start(first, &site.join("state"), &[]);
        let output = command.env("PYTHONPATH", &site).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        text.lines().filter_map(|line| line.split_once('=')).map(owned).collect()
    };
    let value = |given: &[(String, String)], wanted: &str| {
        given.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
    };
    let new: Vec<Library> = asking().collect();
    let (Some(first), Some(second)) = (new.first(), new.last()) else { return };
    if let Some(old) = libraries().into_iter().rfind(|library| version(library) < READS_ENV_PLUGIN) {
        assert_eq!(value(&given("first-is-old", &old, second), VARIABLE), None);
        assert_eq!(value(&given("second-is-old", second, &old), VARIABLE), None);
    }
    let given = given("both-are-new", first, second);
    let own = value(&given, "NCCL_SOCKET_IFNAME").unwrap();
    let copied = [("NCCL_SOCKET_IFNAME", "=lo")];
    let with = |library: &Library, plugin: &str| {
        let marker = marker("ffff", &copied);
        let environment = [copied[0], ("NCCL_RDMA_INIT", marker.as_str()), (VARIABLE, plugin)].into_iter();
        let environment: Vec<(String, String)> =
            environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let case = Case { environment, asks: vec![Ask::Bootstrap], ..Case::default() };
        let outcome = Nccl::start_on_this_machine(library).run(&[case]).remove(0);
        outcome.bootstrap.unwrap().unwrap().0
    };
    let plugin = value(&given, VARIABLE).expect("both ask");
    for library in [first, second] {
        assert_eq!(with(library, "none"), "lo", "NCCL {}", library.version);
        assert_eq!(with(library, &plugin), own.trim_start_matches('='), "NCCL {}", library.version);
    }
}
