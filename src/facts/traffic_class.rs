//! The traffic class that an administrator has set for a port
//! (`/sys/class/infiniband/NAME/tc/NUMBER/traffic_class`). Only mlx5 of NVIDIA's own driver package
//! (MLNX_OFED, DOCA-Host) has this file. The file is empty if no class was set (`traffic_class_show` in the
//! package's `drivers/infiniband/hw/mlx5`).

use serde::{Deserialize, Serialize};

use super::reader::Reader;

const GLOBAL: &str = "Global tclass=";

/// The most characters of an unknown text to keep.
const LONGEST: usize = 200;

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum TrafficClass {
    /// The class of every queue pair that the kernel connects: the byte that IP calls TOS, with the DSCP in
    /// its upper six bits. It overrides rules for single addresses.
    Global(u8),
    /// Rules for single addresses (`src_ip=...,tclass=...`), or text that a later driver adds, as the driver
    /// wrote it.
    Other(String),
}

impl From<String> for TrafficClass {
    fn from(text: String) -> TrafficClass {
        let first = text.lines().next().unwrap_or_default();
        let global = first.strip_prefix(GLOBAL).and_then(|class| class.trim().parse().ok());
        match global {
            Some(class) => TrafficClass::Global(class),
            None => TrafficClass::Other(text.chars().take(LONGEST).collect()),
        }
    }
}

impl From<TrafficClass> for String {
    fn from(class: TrafficClass) -> String {
        match class {
            TrafficClass::Global(class) => format!("{GLOBAL}{class}"),
            TrafficClass::Other(text) => text,
        }
    }
}

/// Reads the class; `None` if the driver does not have the file, or no class was set.
pub(crate) fn read(reader: &Reader, hca: &str, port: u32) -> Option<TrafficClass> {
    let text = reader.text_if_readable(format!("/sys/class/infiniband/{hca}/tc/{port}/traffic_class"))?;
    (!text.trim().is_empty()).then(|| TrafficClass::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn the_global_class_counts_before_rules_and_other_texts_are_kept() {
        let root = FakeRoot::new();
        let reader = root.reader();
        assert_eq!(read(&reader, "mlx5_1", 1), None, "the driver has no such file");
        for (text, expected) in [
            ("", None),
            ("\n", None),
            ("Global tclass=236\n", Some(TrafficClass::Global(236))),
            ("Global tclass=0\ndst_ip=10.0.0.0/8,tclass=106\n", Some(TrafficClass::Global(0))),
            ("Global tclass=256\n", Some(TrafficClass::Other("Global tclass=256".to_owned()))),
            (
                "src_ip=10.0.0.1,tclass=106\n",
                Some(TrafficClass::Other("src_ip=10.0.0.1,tclass=106".to_owned())),
            ),
        ] {
            root.file("sys/class/infiniband/mlx5_1/tc/1/traffic_class", text);
            assert_eq!(read(&reader, "mlx5_1", 1), expected, "{text:?}");
        }
        let document = serde_json::to_string(&TrafficClass::Global(236)).unwrap();
        assert_eq!(document, "\"Global tclass=236\"");
        assert_eq!(serde_json::from_str::<TrafficClass>(&document).unwrap(), TrafficClass::Global(236));
    }
}
