//! Tests what a start does with the env plugin of rdma-init, in an image with the real NCCL.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rdma_init::env_plugin::{DECISION_FILE, LIBRARY, LIBRARY_FILE};
use rdma_init::libraries::nccl::env_plugin::VARIABLE;
use rdma_init::libraries::nccl::version::READS_ENV_PLUGIN;
use tempfile::TempDir;

use super::case::{Ask, Case};
use super::driver::Nccl;
use super::env_plugin_node::{asking, cut, marker};
use super::host::Host;
use super::layout::TWO;
use super::model::{Environment, observed, version};
use super::namespace::Namespace;
use crate::support::namespace::can_be_made;
use crate::support::nccl::{Library, newest, some};
use crate::support::{binary, skip};

/// A network with a default route, and a directory for states in which a start keeps the library.
struct Place {
    namespace: Namespace,
    folder: TempDir,
}

impl Place {
    /// Returns `None` if no start keeps the library on this machine.
    fn make() -> Option<Place> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // In other places, other containers may share the directory.
        if !rdma_init::state::mount::is_of_root(folder.path()) {
            skip("the directory target is not on the file system of the root directory");
            return None;
        }
        can_be_made().then(|| Place { namespace: Namespace::of(&TWO), folder })
    }

    /// Makes a start in an image with this NCCL. Its command is to follow.
    fn start(&self, library: &Library, state: &Path, options: &[&str]) -> Command {
        let mut command = self.namespace.command(binary());
        command.args(OPTIONS).arg("--state-dir").arg(state).args(options).arg("--");
        command.env("LD_LIBRARY_PATH", library.path.parent().unwrap());
        command
    }

    /// Returns what a start passes to its command.
    fn given(&self, library: &Library, state: &Path, options: &[&str]) -> String {
        output(self.start(library, state, options).arg("/usr/bin/env"))
    }

    /// Returns the output of a shell that a start runs.
    fn shell(&self, library: &Library, state: &Path, script: &str) -> String {
        output(self.start(library, state, &[]).args(["/bin/sh", "-c", script]))
    }
}

const OPTIONS: [&str; 3] = ["--profile", "generic-roce", "--write-nccl-conf=false"];

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_start_leaves_the_library_where_nccl_asks_one() {
    let Some(place) = Place::make() else { return };
    let program = binary();
    let program = program.display();
    for library in some(&["2.27.7", "2.28.9"]) {
        let state = place.folder.path().join(&library.version);
        let plugin = state.join(LIBRARY_FILE);
        let line = format!("{VARIABLE}={}\n", plugin.display());
        let asks = version(&library) >= READS_ENV_PLUGIN;
        let given = place.given(&library, &state, &[]);
        assert_eq!(given.contains(&line), asks, "NCCL {}: {given}", library.version);
        assert_eq!(given.contains("\nNCCL_RDMA_INIT=1:"), asks, "{given}");
        assert_eq!(fs::read(&plugin).is_ok_and(|bytes| bytes == LIBRARY), asks);
        assert_eq!(fs::read_to_string(state.join("nccl.conf")).unwrap().contains(&line), asks);
        assert_eq!(state.join(DECISION_FILE).exists(), asks);
        if asks {
            // A crash of the machine may leave a file like this.
            cut(&plugin);
            place.given(&library, &state, &[]);
            assert!(fs::read(&plugin).is_ok_and(|bytes| bytes == LIBRARY));
            let status = format!("--state-dir {}", state.display());
            let itself = format!("NCCL_ALGO=Ring /bin/sh -c '{program} plan --in $$ {status}'");
            let mut start = place.start(&library, &state, &[]);
            let shown = output(start.args(["/bin/sh", "-c", &itself]).env("NCCL_PROTO", "Simple"));
            assert!(shown.contains("NCCL asks rdma-init's env plugin there"), "{shown}");
            assert!(shown.contains("  ours   NCCL_SOCKET_IFNAME"), "{shown}");
            assert!(shown.contains("  own    NCCL_ALGO"), "{shown}");
            assert!(shown.contains("  yours  NCCL_PROTO"), "{shown}");

            let status = format!("{program} status {status}");
            let file = plugin.display();
            let script = format!("{status}; truncate -s 5000 {file}; {status}; echo $?; rm {file}; {status}");
            let shown = place.shell(&library, &state, &script);
            let lines: Vec<&str> = shown.lines().collect();
            assert!(lines[0].ends_with("filled in, and NCCL asks the env plugin"), "{shown}");
            let without = "NCCL does not ask the env plugin, because its file is gone or cut";
            assert!(lines[2].ends_with(without) && lines[5].ends_with(without), "{shown}");
            let runs = "the command runs";
            assert_eq!([lines[1], lines[3], lines[4], lines[6]], [runs, runs, "0", runs], "{shown}");
        }
        // The next start removes what this one left.
        for options in [["--nccl-env-plugin", "off"], ["--set", "NCCL_ENV_PLUGIN=none"]] {
            place.given(&library, &state, &[]);
            let given = place.given(&library, &state, &options);
            assert!(!given.contains(&line) && !plugin.exists(), "{options:?}: {given}");
            assert!(!state.join(DECISION_FILE).exists());
        }
    }
    let shared = tempfile::tempdir_in("/tmp").unwrap();
    let given = place.given(&newest(), shared.path(), &[]);
    assert!(!given.contains(VARIABLE), "{given}");
}

/// Returns a start within the command of a start.
fn within(state: &Path, options: &str) -> String {
    let (program, state) = (binary(), state.display());
    format!("{} {} --state-dir {state} {options} -- /usr/bin/env", program.display(), OPTIONS.join(" "))
}

#[test]
fn a_start_within_a_start_that_is_to_use_none_silences_the_outer_ones() {
    let Some(place) = Place::make() else { return };
    for library in asking() {
        let state = place.folder.path().join(&library.version);
        let ours = format!("{VARIABLE}={}", state.join(LIBRARY_FILE).display());
        let named = |before: &str, options: &str| {
            let command = format!("{before} {}", within(&state, options));
            let given = place.shell(&library, &state, &command);
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
    let Some(place) = Place::make() else { return };
    let Some(library) = asking().last() else { return };
    let state = place.folder.path().join("state");
    let run = |before: &str| {
        let command = format!("exec 2>&1; {before} {}", within(&state, ""));
        place.shell(&library, &state, &command)
    };
    let copied = "another start, probably on another node";
    let own = run("unshare --mount");
    assert!(own.contains("\nNCCL_RDMA_INIT=1:") && !own.contains(copied), "{own}");
    assert!(own.contains("  set    NCCL_SOCKET_IFNAME") && !own.contains("yours  NCCL_"), "{own}");
    // A marker from another node is recognized there as well.
    let foreign = run("env NCCL_ALGO=Ring NCCL_RDMA_INIT=1:ffff:ALGO=7787478b unshare --mount");
    assert!(foreign.contains(copied) && !foreign.contains("NCCL_ALGO="), "{foreign}");
}

/// NCCL fails with a name that its network namespace does not have.
#[test]
fn in_another_network_namespace_nccl_chooses_itself() {
    let Some(place) = Place::make() else { return };
    let bootstrap = |library: &Library, options: &[&str]| {
        let state = place.folder.path().join(format!("{}-{}", library.version, options.len()));
        let start = |driver: &Path| {
            let mut command = place.start(library, &state, options);
            let script = "ip link set lo up; exec \"$0\" \"$@\"";
            command.args(["unshare", "--net", "/bin/sh", "-ec", script]).arg(driver).stderr(Stdio::null());
            command
        };
        let environment = Environment::new();
        let case = Case { host: Host::default(), environment, asks: vec![Ask::Bootstrap, Ask::Ib] };
        observed(&Nccl::start_by(start, "started", library).run(&[case]).remove(0)).bootstrap
    };
    for library in asking() {
        assert_eq!(bootstrap(&library, &[]), "lo 127.0.0.1", "NCCL {}", library.version);
        let without = bootstrap(&library, &["--nccl-env-plugin", "off"]);
        assert_ne!(without, "lo 127.0.0.1", "NCCL {}", library.version);
    }
}

/// The image has one NCCL version where the loader searches, and another one in a Python package.
#[test]
fn of_two_releases_each_gets_its_own_and_an_old_one_turns_the_plugin_off() {
    let Some(place) = Place::make() else { return };
    let given = |state: &str, first: &Library, second: &Library| -> Vec<(String, String)> {
        let folder = place.folder.path().join(state).join("nvidia/nccl/lib");
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(second.path.canonicalize().unwrap(), folder.join("libnccl.so.2")).unwrap();
        let site = place.folder.path().join(state);
        let mut command = place.start(first, &site.join("state"), &[]);
        let text = output(command.arg("/usr/bin/env").env("PYTHONPATH", &site));
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        text.lines().filter_map(|line| line.split_once('=')).map(owned).collect()
    };
    let value = |given: &[(String, String)], wanted: &str| {
        given.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
    };
    let new: Vec<Library> = asking().collect();
    let (Some(first), Some(second)) = (new.first(), new.last()) else { return };
    if let Some(old) = some(&["2.27.7"]).into_iter().rfind(|library| version(library) < READS_ENV_PLUGIN) {
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
        let start = |driver: &Path| place.namespace.command(driver);
        let outcome = Nccl::start_by(start, "real", library).run(&[case]).remove(0);
        outcome.bootstrap.unwrap().unwrap().0
    };
    let plugin = value(&given, VARIABLE).expect("both ask");
    for library in [first, second] {
        assert_eq!(with(library, "none"), "lo", "NCCL {}", library.version);
        assert_eq!(with(library, &plugin), own.trim_start_matches('='), "NCCL {}", library.version);
    }
}
