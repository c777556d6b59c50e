//! Makes a layout of links in a network namespace of this machine.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::layout::{Layout, Link, State};
use crate::support::namespace::Process;
use crate::support::{poll_until, repository};

pub struct Namespace {
    /// This process keeps the namespace with the links alive.
    own: Process,
    /// This process keeps the namespace with the links' other ends alive.
    _peers: Process,
    folder: TempDir,
}

impl Namespace {
    pub fn of(layout: &Layout) -> Namespace {
        let folder = tempfile::tempdir().unwrap();
        let peers = Process::of_links();
        let own = Process::start(
            Command::new("unshare")
                .args(["--net", "--mount", "--"])
                .arg(repository("tests/nccl/namespace.sh"))
                .arg(folder.path()),
        );
        own.ip(&layout.links.iter().map(|link| add(link, peers.pid())).collect::<Vec<_>>());
        let connected = layout.links.iter().filter(|link| link.state == State::Running);
        peers.ip(&connected.map(|link| format!("link set {} up", link.name)).collect::<Vec<_>>());
        own.ip(&layout.links.iter().flat_map(configure).collect::<Vec<_>>());
        let namespace = Namespace { own, _peers: peers, folder };
        for link in layout.links {
            let wanted = if link.state == State::Running { "up" } else { "down" };
            // The kernel sets this state some time after the carrier.
            let state = format!("/sys/class/net/{}/operstate", link.name);
            poll_until(&format!("{} is {wanted}", link.name), || {
                (namespace.text_of("cat", &state).trim() == wanted).then_some(())
            });
        }
        if let Some((gateway, link)) = layout.default {
            namespace.own.ip(&[format!("route add default via {gateway} dev {link}")]);
        }
        namespace
    }

    /// Returns the file of the network namespace, for nsenter(1).
    pub fn network(&self) -> File {
        File::open(format!("/proc/{}/ns/net", self.own.pid())).unwrap()
    }

    /// Makes a command that runs a program in the namespaces, with its own environment.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.own.command(&["--net", "--mount"], program);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    fn text_of(&self, program: &str, argument: &str) -> String {
        let output = self.command(program).arg(argument).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Writes a file that is visible only in this namespace.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) {
        let mut command = self.command("tee");
        let mut tee = command.arg(path.as_ref()).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        tee.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(tee.wait().unwrap().success());
    }

    /// Returns a home directory for tests that set `HOME`.
    pub fn home_by_variable(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns the home directory in the user database.
    pub fn home_of_the_database(&self) -> PathBuf {
        self.folder.path().join("database")
    }
}

/// Returns the line that adds a link. Its other end has the same name and is in another
/// namespace.
fn add(link: &Link, peers: u32) -> String {
    let Link { name, index, .. } = link;
    let index = index.map(|index| format!("index {index} ")).unwrap_or_default();
    format!("link add {name} {index}type veth peer name {name} netns {peers}")
}

fn configure(link: &Link) -> Vec<String> {
    let name = link.name;
    // The kernel must not generate a random address for the link.
    let mut lines = vec![format!("link set {name} addrgenmode none")];
    if link.state != State::Down {
        lines.push(format!("link set {name} up"));
    }
    for address in link.addresses {
        // Without `nodad`, duplicate address detection would delay the address.
        let nodad = if address.contains("::") { " nodad" } else { "" };
        lines.push(format!("addr add {address} dev {name}{nodad}"));
    }
    lines
}
