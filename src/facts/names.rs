//! The names that the processes of a job use to find each other: this host's name, if a file resolves it, and
//! the name of the job's master, if a file or DNS resolves it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::hosts::{self, LONGEST};
use super::platform::Platform;
use super::reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Names {
    /// The name of this host, as gethostname(2) returns it.
    pub host: String,
    /// The addresses for this name in `/etc/hosts`, in the order of the lines. If there are none, a library
    /// asks DNS, but rdma-init does not.
    pub host_addresses: Vec<IpAddr>,
    /// The services that getaddrinfo(3) asks for a host's name, in the order of `/etc/nsswitch.conf`, such as
    /// `files` (for `/etc/hosts`) and `dns`. Empty if no line there lists them; then the C library's default
    /// order applies, which includes `files`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// What `MASTER_ADDR` resolves to. `None` if it is not set, or needs no lookup, because it is an address
    /// or this host's own name, or because the job has only one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<Master>,
}

impl Names {
    /// Returns whether getaddrinfo(3) reads `/etc/hosts` at all.
    pub fn asks_file(&self) -> bool {
        self.services.is_empty() || self.services.iter().any(|service| service == "files")
    }
}

/// What the name of the job's master resolves to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Master {
    /// `/etc/hosts` contains the name.
    InFile(Vec<IpAddr>),
    ByDns(Vec<IpAddr>),
    /// No service knows the name. The text names the services.
    Unknown(String),
}

/// Looks up a name that no file contains; the error is a sentence.
pub(crate) type LookUp = fn(&str) -> Result<Vec<IpAddr>, String>;

/// Reads the host's name, and looks up its addresses and the master's; `None` if the host has no name.
pub(crate) fn read(reader: &Reader, platform: &Platform, look_up: LookUp) -> Option<Names> {
    let host = reader.host_name().filter(|name| !name.is_empty())?;
    let file = reader.bytes("/etc/hosts", LONGEST).unwrap_or_default();
    let services = hosts::services(&reader.text_if_readable("/etc/nsswitch.conf").unwrap_or_default());
    let names = Names { host_addresses: hosts::addresses(&file, &host), services, host, master: None };
    let host = &names.host;
    let is_alone = platform.nodes.is_some_and(|nodes| nodes.count == 1);
    let name = platform.master_addr.as_deref().filter(|name| !is_alone && !is_address(name));
    let master = name.and_then(|name| match hosts::addresses(&file, name) {
        found if !found.is_empty() && names.asks_file() => Some(Master::InFile(found)),
        _ if is_same_host(name, host) => None,
        _ => Some(look_up(name).map_or_else(Master::Unknown, Master::ByDns)),
    });
    Some(Names { master, ..names })
}

fn is_address(text: &str) -> bool {
    text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

/// Returns whether two names begin with the same label: one of them may include the domain.
pub(crate) fn is_same_host(one: &str, other: &str) -> bool {
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    label(one) == label(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::launchers::Nodes;

    #[test]
    fn the_host_and_the_master_are_looked_up() {
        let root = FakeRoot::new();
        let address = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        let read = |master: &str, count| {
            let nodes = Some(Nodes { count, this: 0 });
            let platform = Platform { master_addr: Some(master.to_owned()), nodes, ..Platform::default() };
            read(&root.reader(), &platform, |name| match name {
                "in-dns" => Ok(vec!["10.9.9.9".parse().unwrap()]),
                _ => Err("DNS does not know it".to_owned()),
            })
        };
        let master = |name: &str| read(name, 2).unwrap().master;
        assert_eq!(read("node-0", 2), None, "the host has no name");
        root.file("proc/sys/kernel/hostname", "node-1\n");
        let unknown = Master::Unknown("DNS does not know it".to_owned());
        let named = Names { host: "node-1".to_owned(), master: Some(unknown.clone()), ..Names::default() };
        assert_eq!(read("node-0", 2), Some(named), "without /etc/hosts");

        root.file("etc/nsswitch.conf", "passwd: files\nhosts: dns # no files\n");
        root.file("etc/hosts", "10.0.0.1 node-0\n");
        let names = read("node-0", 2).unwrap();
        assert_eq!(
            (names.services.clone(), names.master.clone()),
            (vec!["dns".to_owned()], Some(unknown.clone()))
        );
        assert!(!names.asks_file());
        root.file("etc/nsswitch.conf", "hosts:\tfiles [!UNAVAIL=return] dns\n");
        let names = read("node-0", 2).unwrap();
        assert_eq!((names.services.join(" "), names.asks_file()), ("files dns".to_owned(), true));

        root.file("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 node-1.local node-1\n10.0.0.1 node-0\n");
        assert_eq!(read("node-0", 2).unwrap().host_addresses, address("127.0.1.1"));
        for (name, found) in [
            ("node-0", Some(Master::InFile(address("10.0.0.1")))),
            ("node-1", Some(Master::InFile(address("127.0.1.1")))),
            ("in-dns", Some(Master::ByDns(address("10.9.9.9")))),
            ("node-9", Some(unknown)),
            ("NODE-1.other", None),
            ("10.0.0.7", None),
            ("[fd00::7]", None),
        ] {
            assert_eq!(master(name), found, "{name}");
        }
        assert_eq!(read("node-9", 1).unwrap().master, None, "the only node");
    }
}
