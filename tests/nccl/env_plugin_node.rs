//! A node with the env plugin of rdma-init and its decision, and the processes that ask the plugin.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rdma_init::env_plugin::answer::hash;
use rdma_init::env_plugin::{DECISION_FILE, LIBRARY, LIBRARY_FILE};
use rdma_init::facts::Facts;
use rdma_init::libraries::nccl::env_plugin::VARIABLE;
use rdma_init::libraries::nccl::version::READS_ENV_PLUGIN;

use super::case::Case;
use super::driver::Nccl;
use super::libibverbs::in_image_of_driver;
use super::model::{Environment, case, observed, version};
use super::outcome::Outcome;
use crate::support::binary;
use crate::support::nccl::{Library, driver, some};

/// The decision for this node. The host also has mlx5_2, and eth0 among its interfaces.
pub const DECIDED: [(&str, &str); 3] =
    [("NCCL_IB_HCA", "=mlx5_1"), ("NCCL_SOCKET_IFNAME", "=eth0"), ("NCCL_IB_GID_INDEX", "3")];

/// Returns the shared object for the architecture of the tested NCCL. If that differs from this machine's,
/// the program for that architecture contains the shared object as one of its embedded ELF files, which
/// ends with its program headers.
pub fn own_library() -> Vec<u8> {
    if runs_here() {
        return LIBRARY.to_vec();
    }
    let program = fs::read(binary()).unwrap();
    let starts = program.windows(4).enumerate().skip(1).filter(|(_, bytes)| bytes == b"\x7fELF");
    let number = |at: usize, size: usize| {
        program[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let is_library = |start: &usize| program[start + 16..start + 20] == [3, 0, program[18], program[19]];
    let start = starts.map(|(start, _)| start).find(is_library).expect("the program has the library in it");
    let size = number(start + 32, 8) + number(start + 54, 2) * number(start + 56, 2);
    program[start..start + size].to_vec()
}

/// A state directory with the library and the decision.
pub struct Node {
    pub place: tempfile::TempDir,
}

impl Node {
    pub fn new() -> Node {
        let node = Node { place: tempfile::tempdir().unwrap() };
        let devices = [("mlx5_1", "b859:0001", "0000:17:00.0"), ("mlx5_2", "b859:0002", "0000:27:00.0")];
        for (name, guid, pci) in devices {
            node.add_hca(name, guid, pci);
        }
        node.has_interfaces(&["lo", "eth0"]);
        fs::write(node.path(LIBRARY_FILE), own_library()).unwrap();
        node.decide(&DECIDED, "");
        node
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn add_hca(&self, name: &str, guid: &str, pci: &str) {
        let folder = self.path("sys/class/infiniband").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("node_guid"), format!("{guid}\n")).unwrap();
        symlink(format!("../../../{pci}"), folder.join("device")).unwrap();
    }

    /// Writes the interfaces in the form in which the kernel shows those of a process's network namespace.
    pub fn has_interfaces(&self, names: &[&str]) {
        let titles = "Inter-|   Receive  |  Transmit\n face |bytes    packets |bytes    packets\n";
        let lines = names.iter().map(|name| format!("{name:>6}:      15       1       15       1\n"));
        fs::create_dir_all(self.path("proc/self/net")).unwrap();
        fs::write(self.path("proc/self/net/dev"), format!("{titles}{}", lines.collect::<String>())).unwrap();
    }

    pub fn decide(&self, set: &[(&str, &str)], more: &str) {
        let set: String = set.iter().map(|(name, value)| format!("set {name}={value}\n")).collect();
        let text = format!(
            "rdma-init env plugin 1\nnode 0a1b\nsys {}\nproc {}\n{set}{more}hca mlx5_1 b859:0001 0000:17:00.0\nend\n",
            self.path("sys").display(),
            self.path("proc").display()
        );
        fs::write(self.path(DECISION_FILE), text).unwrap();
    }

    /// Runs NCCL as [`Node::run`] does, on a host with these facts. Returns the ports, each with its GID
    /// index.
    pub fn ports(&self, library: &Library, facts: &Facts, environment: &[(&str, &str)]) -> Vec<String> {
        let outcome = Nccl::start(library).run(&[self.case(facts, &[], environment)]).remove(0);
        observed(&outcome).ports.iter().map(|(port, slot)| format!("{port} {slot}")).collect()
    }

    /// Returns what NCCL does, as [`shown`], and its log. `/etc/nccl.conf` names the library, and has these
    /// lines as well.
    pub fn run(
        &self,
        library: &Library,
        conf: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> (String, String) {
        let case = self.case(&in_image_of_driver(&[], &[]), conf, environment);
        let outcome = Nccl::start(library).run(&[case]).remove(0);
        (shown(&outcome), outcome.log)
    }

    /// Makes a process on a host with these facts, whose `/etc/nccl.conf` names the library, and has these
    /// lines as well.
    pub fn case(&self, facts: &Facts, conf: &[(&str, &str)], environment: &[(&str, &str)]) -> Case {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment: Environment = environment.iter().map(owned).collect();
        let mut case = case(facts, &environment);
        let plugin = self.path(LIBRARY_FILE);
        let named = [(VARIABLE, plugin.to_str().unwrap())];
        let lines = named.iter().chain(conf).map(|(name, value)| format!("{name}={value}\n"));
        case.host.files.push(("/etc/nccl.conf".to_owned(), lines.collect::<String>().into_bytes()));
        case
    }
}

/// Returns what NCCL does, as `HCA BOOTSTRAP`.
pub fn shown(outcome: &Outcome) -> String {
    let found = observed(outcome);
    let ports: Vec<&str> = found.ports.keys().map(String::as_str).collect();
    let interface = found.bootstrap.split(' ').next().unwrap_or_default();
    format!("{} {interface}", ports.join("+"))
}

pub fn marker(node: &str, values: &[(&str, &str)]) -> String {
    let entry = |(name, value): &(&str, &str)| {
        let hash = String::from_utf8(hash(value.as_bytes()).into()).unwrap();
        format!("{}={hash}", name.trim_start_matches("NCCL_"))
    };
    format!("1:{node}:{}", values.iter().map(entry).collect::<Vec<_>>().join(","))
}

/// Returns the versions of NCCL that ask an env plugin: the first one, which has the first version of its interface, and
/// the newest.
pub fn asking() -> impl Iterator<Item = Library> {
    some(&["2.28.9"]).into_iter().filter(|library| version(library) >= READS_ENV_PLUGIN)
}

pub const OURS: &str = "mlx5_1:1/RoCE eth0";

pub fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

pub fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Makes the client in tests/nccl/env, which asks for each variable in four threads and in a child.
pub fn client(node: &Node, through: &[&str], times: usize) -> Command {
    client_at(driver().join("env-client"), node, through, times)
}

/// Makes the same of a copy.
pub fn client_at(program: PathBuf, node: &Node, through: &[&str], times: usize) -> Command {
    let words: Vec<PathBuf> = through.iter().map(PathBuf::from).chain([program]).collect();
    let mut command = Command::new(&words[0]);
    let plugin = node.path(LIBRARY_FILE);
    command.args(&words[1..]).arg(&plugin).arg(times.to_string()).arg("4");
    command.args(["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_ALGO"]);
    command.env_clear().env(VARIABLE, &plugin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub const ANSWERS: [&str; 3] = ["NCCL_IB_HCA==mlx5_1", "NCCL_SOCKET_IFNAME==eth0", "NCCL_ALGO"];

pub fn answers(started: Child) -> Vec<String> {
    let output = started.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text.lines().filter(|line| !line.starts_with("log ")).take(3).map(str::to_owned).collect()
}

/// Returns whether the tested NCCL has this machine's architecture.
fn runs_here() -> bool {
    std::env::var_os("RDMA_INIT_TEST_NCCL_ARCHITECTURE").is_none_or(|name| name.is_empty())
}
