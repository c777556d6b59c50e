//! The names by which the processes of a job look each other up, as far as a file tells:
//! that of this host, and that of the job's master.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::hosts::{self, LONGEST};
use super::platform::Platform;
use super::reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Names {
    /// The name of this host, as gethostname(2) tells it.
    pub host: String,
    /// What `/etc/hosts` says about it, in the order of the lines. Where that is nothing, DNS
    /// is asked, which is not done here.
    pub host_addresses: Vec<IpAddr>,
    /// What `/etc/hosts` says about `MASTER_ADDR`, where that is a name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub master_addresses: Vec<IpAddr>,
}

/// Reads the host's name and looks for the names in `/etc/hosts`; `None` if the host has no name.
pub fn read(reader: &Reader, platform: &Platform) -> Option<Names> {
    let host = reader.text_if_readable("/proc/sys/kernel/hostname").filter(|name| !name.is_empty())?;
    let file = reader.bytes("/etc/hosts", LONGEST).unwrap_or_default();
    let master = platform.master_addr.as_deref();
    Some(Names {
        host_addresses: hosts::addresses(&file, &host),
        master_addresses: master.map(|name| hosts::addresses(&file, name)).unwrap_or_default(),
        host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_host_and_the_master_are_looked_up_in_the_file() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let read = || {
            read(
                &Reader::new(root.path()),
                &Platform { master_addr: Some("node-0".to_owned()), ..Platform::default() },
            )
        };
        assert_eq!(read(), None);
        write("proc/sys/kernel/hostname", "node-1\n");
        let named = Names { host: "node-1".to_owned(), ..Names::default() };
        assert_eq!(read(), Some(named.clone()), "without /etc/hosts");
        write("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 node-1.local node-1\n10.0.0.1 node-0\n");
        let address = |text: &str| vec![text.parse().unwrap()];
        let found =
            Names { host_addresses: address("127.0.1.1"), master_addresses: address("10.0.0.1"), ..named };
        assert_eq!(read(), Some(found));
    }
}
