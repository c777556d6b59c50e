//! A host as NCCL sees it through the kernel and libibverbs.

use std::net::Ipv6Addr;

use ipnet::IpNet;

/// A described host. The default one has nothing.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The HCAs in the order in which libibverbs lists them.
    pub hcas: Vec<Hca>,
    /// The interfaces in the order of getifaddrs(3).
    pub interfaces: Vec<Interface>,
    /// The paths and contents of nccl.conf and similar files. No other files exist, except those of the
    /// kernel.
    pub files: Vec<(String, Vec<u8>)>,
    /// The home directory in the user database. `HOME` is part of the environment.
    pub home: Option<String>,
    /// The user of NCCL's process, if it is not that of the test.
    pub user: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub struct Hca {
    pub name: String,
    /// The errno of opening the device; 0 if it can be opened.
    pub open_error: i32,
    pub guid: u64,
    /// The target of `/sys/class/infiniband/NAME/device`; `None` without such a link.
    pub pci_path: Option<String>,
    /// The location of its Data Direct function, if it has one.
    pub data_direct: Option<String>,
    pub ports: Vec<Port>,
}

#[derive(Debug, Clone, Default)]
pub struct Port {
    /// The number of the port, counted from 1.
    pub number: u32,
    /// The state, a value of `enum ibv_port_state`.
    pub state: u32,
    /// The link layer, one of `IBV_LINK_LAYER_*`.
    pub link_layer: u32,
    /// The number of GID entries, used and empty.
    pub table_size: u32,
    /// GID entries that are not listed are empty: all zero, with an invalid type.
    pub slots: Vec<Slot>,
}

#[derive(Debug, Clone)]
pub struct Slot {
    pub index: u32,
    pub gid: Ipv6Addr,
    pub file: TypeFile,
}

/// The file `gid_attrs/types/INDEX` of a GID entry.
#[derive(Debug, Clone, PartialEq)]
pub enum TypeFile {
    Missing,
    /// Reading the file fails with EINVAL, as for an empty entry.
    Invalid,
    /// The file contains this line.
    Text(String),
}

/// An entry of getifaddrs(3).
#[derive(Debug, Clone)]
pub struct Interface {
    pub name: String,
    pub index: u32,
    /// The flags of the interface, `IFF_*`.
    pub flags: u32,
    pub address: Address,
}

#[derive(Debug, Clone, Copy)]
pub enum Address {
    /// The entry's address is a null pointer.
    None,
    /// The entry's address is AF_PACKET; each interface has one such entry.
    Link,
    Ip(IpNet),
}

pub const PORT_DOWN: u32 = 1;
pub const PORT_ACTIVE: u32 = 4;
pub const LINK_INFINIBAND: u32 = 1;
pub const LINK_ETHERNET: u32 = 2;

pub const ROCE_V1: &str = "IB/RoCE v1";
pub const ROCE_V2: &str = "RoCE v2";

impl Host {
    /// Returns the lines that describe this host to the driver.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(home) = &self.home {
            lines.push(format!("home {}", hex(home)));
        }
        lines.extend(self.user.map(|user| format!("user {user}")));
        for (path, contents) in &self.files {
            lines.push(format!("file {} {}", hex(path), hex(contents)));
        }
        lines.extend(self.interfaces.iter().map(Interface::line));
        for hca in &self.hcas {
            let path = |path: &Option<String>| path.as_ref().map_or("-".to_owned(), hex);
            lines.push(format!(
                "hca {} {} {:#x} {} {}",
                hex(&hca.name),
                hca.open_error,
                hca.guid,
                path(&hca.pci_path),
                path(&hca.data_direct)
            ));
            for port in &hca.ports {
                let Port { number, state, link_layer, table_size, .. } = port;
                lines.push(format!("port {number} {state} {link_layer} {table_size}"));
                lines.extend(port.slots.iter().map(Slot::line));
            }
        }
        lines
    }
}

impl Interface {
    fn line(&self) -> String {
        let Interface { name, index, flags, address } = self;
        let address = match address {
            Address::None => "none 0".to_owned(),
            Address::Link => "link 0".to_owned(),
            Address::Ip(net) => format!("{} {}", net.addr(), net.prefix_len()),
        };
        format!("interface {} {index} {flags} {address}", hex(name))
    }
}

impl Slot {
    fn line(&self) -> String {
        let file = match &self.file {
            TypeFile::Missing => "missing".to_owned(),
            TypeFile::Invalid => "invalid".to_owned(),
            TypeFile::Text(text) => hex(format!("{text}\n")),
        };
        format!("slot {} {} {file}", self.index, self.gid)
    }
}

/// Returns bytes as one word of hexadecimal digits. The leading `x` makes even an empty text a word.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    let digit = |half| char::from_digit(u32::from(half), 16).unwrap();
    let digits = bytes.as_ref().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    std::iter::once('x').chain(digits).collect()
}

/// Returns the bytes from which [`hex`] made this word.
pub fn unhex(word: &str) -> Vec<u8> {
    let digits = word.strip_prefix('x').unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}
