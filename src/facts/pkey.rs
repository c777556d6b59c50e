//! Partition keys: `ports/N/pkeys`.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::reader::{self, Reader};

/// The P_Key table of an InfiniBand port, which the subnet manager fills. Only used entries are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PkeyTable {
    /// Number of entries, used and empty.
    pub size: u32,
    /// Number of entries read, from index 0.
    pub scanned: u32,
    pub slots: Vec<PkeySlot>,
}

/// A used entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PkeySlot {
    pub index: u32,
    pub pkey: Pkey,
}

/// A partition, and the kind of membership that the port has in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pkey(pub u16);

impl Pkey {
    /// Returns whether the port is a full member. Two limited members cannot communicate with each other
    /// (InfiniBand Architecture Specification, volume 1, 10.9.1.2).
    pub fn is_full_member(self) -> bool {
        self.0 & 0x8000 != 0
    }
}

impl TryFrom<String> for Pkey {
    type Error = String;

    fn try_from(text: String) -> Result<Pkey, String> {
        let digits = text.strip_prefix("0x");
        let number = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        number.map(Pkey).ok_or_else(|| format!("it is not a partition key: {text:?}"))
    }
}

impl From<Pkey> for String {
    fn from(pkey: Pkey) -> String {
        pkey.to_string()
    }
}

impl std::fmt::Display for Pkey {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl std::fmt::Display for PkeyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let slots: Vec<String> =
            self.slots.iter().map(|slot| format!("{} at index {}", slot.pkey, slot.index)).collect();
        f.write_str(if slots.is_empty() { "none" } else { "" })?;
        f.write_str(&slots.join(", "))
    }
}

impl PkeyTable {
    /// Returns the key in an entry; `None` if the entry is empty or was not read.
    pub fn at(&self, index: u32) -> Option<Pkey> {
        self.slots.iter().find(|slot| slot.index == index).map(|slot| slot.pkey)
    }

    /// Returns whether an entry is certainly empty.
    pub fn is_empty_at(&self, index: u32) -> bool {
        self.at(index).is_none() && (index < self.scanned || index >= self.size)
    }
}

/// The reader stops after this many empty entries: a subnet manager fills the table from its start, and
/// reading an entry may send a command to the device.
const GAP: u32 = 16;

/// Reads a table; `None` if the port has none.
pub(crate) fn read(reader: &Reader, port: &str) -> Option<PkeyTable> {
    let folder = reader.path(port).join("pkeys");
    let size = u32::try_from(reader.names(format!("{port}/pkeys")).len()).unwrap_or(u32::MAX);
    let mut table = PkeyTable { size, ..PkeyTable::default() };
    let mut gap = 0;
    while table.scanned < size && gap < GAP {
        let index = table.scanned;
        table.scanned += 1;
        gap += 1;
        let path = folder.join(index.to_string());
        match reader.attribute(&path).map(Pkey::try_from) {
            Ok(Ok(Pkey(0))) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Ok(Ok(pkey)) => {
                table.slots.push(PkeySlot { index, pkey });
                gap = 0;
            }
            Ok(Err(error)) => reader.remember(&path, error),
            Err(errno) => reader.remember(&path, reader::describe(errno)),
        }
    }
    (size > 0).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn used_slots_are_kept_and_a_long_table_is_not_read_to_its_end() {
        let root = FakeRoot::new();
        for index in 0..128 {
            let text = match index {
                0 => "0x7fff\n",
                2 => "0x8005\n",
                3 => "five\n",
                // A key after the gap.
                100 => "0xffff\n",
                _ => "0x0000\n",
            };
            root.file(&format!("port/pkeys/{index}"), text);
        }
        let reader = root.reader();
        let table = read(&reader, "port").unwrap();
        assert_eq!((table.size, table.scanned), (128, 19));
        assert_eq!(
            serde_json::to_string(&table.slots).unwrap(),
            r#"[{"index":0,"pkey":"0x7fff"},{"index":2,"pkey":"0x8005"}]"#
        );
        assert_eq!(
            serde_json::from_str::<Vec<PkeySlot>>(&serde_json::to_string(&table.slots).unwrap()).unwrap(),
            table.slots
        );
        assert!(!table.at(0).unwrap().is_full_member() && table.at(2).unwrap().is_full_member());
        assert!(table.is_empty_at(1) && table.is_empty_at(128));
        assert!(!table.is_empty_at(0) && !table.is_empty_at(100));
        let unreadable = reader.into_unreadable();
        assert_eq!(unreadable[0].error, "it is not a partition key: \"five\"");
        assert_eq!(read(&root.reader(), "none"), None);
    }
}
