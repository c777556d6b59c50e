//! Reads from a libibverbs provider's data which kernel driver ABIs it supports.
//!
//! A provider gives libibverbs a `struct verbs_device_ops` (rdma-core, `libibverbs/driver.h`), which begins
//! with its name, the lowest and highest ABI, and its device table. libibverbs skips a device if its driver
//! has an ABI outside that range (`libibverbs/init.c`, `match_device`).

use serde::{Deserialize, Serialize};

use super::elf::Elf;
use super::tree::Tree;
use std::path::Path;

/// An inclusive range of kernel driver ABIs. Each driver has its own numbering.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelAbi {
    /// `match_min_abi_version`.
    pub least: u32,
    /// `match_max_abi_version`; 2147483647 if the provider supports every later ABI.
    pub most: u32,
}

impl KernelAbi {
    pub fn has(self, abi: u32) -> bool {
        (self.least..=self.most).contains(&abi)
    }
}

/// The offsets of the lowest ABI, the highest ABI, and the device table in `struct verbs_device_ops`.
const LEAST: u64 = 8;
const MOST: u64 = 12;
const TABLE: u64 = 16;

/// Returns the range that the provider in this file states, if the provider has this name.
pub(crate) fn stated(tree: &Tree, real: &Path, name: &str) -> Option<KernelAbi> {
    let file = tree.open(real)?;
    in_library(&Elf::open(&file).ok()?, name)
}

pub(super) fn in_library(elf: &Elf, name: &str) -> Option<KernelAbi> {
    let data = elf.data()?;
    data.pointers.iter().find_map(|(address, target)| {
        let at = |offset: u64| address.checked_add(offset);
        // The struct begins with a pointer, two numbers that are not pointers, and a pointer.
        if data.pointers.contains_key(&at(LEAST)?) || !data.pointers.contains_key(&at(TABLE)?) {
            return None;
        }
        let range = KernelAbi { least: data.number(at(LEAST)?)?, most: data.number(at(MOST)?)? };
        let is_it = range.least <= range.most && elf.text_at_address(*target)? == name;
        is_it.then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;
    use crate::image::fake;

    fn of(library: &fake::FakeLibrary, name: &str) -> Option<KernelAbi> {
        of_bytes(&library.bytes(), name)
    }

    fn of_bytes(bytes: &[u8], name: &str) -> Option<KernelAbi> {
        let mut file: File = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        in_library(&Elf::open(&file).ok()?, name)
    }

    #[test]
    fn the_range_is_found_behind_the_name() {
        for packed in [false, true] {
            let states = |least, most| fake::FakeLibrary {
                states: Some(("bnxt_re", least, most)),
                needed: &["libibverbs.so.1"],
                packed,
                ..Default::default()
            };
            assert_eq!(of(&states(1, 1), "bnxt_re"), Some(KernelAbi { least: 1, most: 1 }));
            let any = KernelAbi { least: 0, most: i32::MAX as u32 };
            assert_eq!(of(&states(0, any.most), "bnxt_re"), Some(any));
            assert_eq!(of(&states(1, 1), "bnxt"), None, "the name of another");
            assert_eq!(of(&states(2, 1), "bnxt_re"), None, "no range");
        }
        assert_eq!(of(&fake::FakeLibrary::default(), ""), None);
        let range = KernelAbi { least: 1, most: 3 };
        assert_eq!([0, 1, 3, 4].map(|abi| range.has(abi)), [false, true, true, false]);
    }

    /// Reading arbitrary bytes does not panic and terminates.
    #[test]
    fn broken_files_state_nothing_or_anything() {
        let mut random = fastrand::Rng::with_seed(3);
        for packed in [false, true] {
            let good =
                fake::FakeLibrary { states: Some(("efa", 1, 1)), packed, ..Default::default() }.bytes();
            for length in 0..good.len() {
                let _ = of_bytes(&good[..length], "efa");
            }
            for _ in 0..1000 {
                let _ = of_bytes(&fake::damaged(&good, &mut random), "efa");
            }
        }
    }
}
