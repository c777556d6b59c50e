//! The symbol versions that a library needs from others, and those that it defines. The dynamic loader
//! refuses a library if a dependency lacks a version that it needs (glibc, `elf/dl-version.c`).

use super::{DT_STRTAB, Elf, LONGEST, Segment};
use crate::image::bytes::{u16_at, u32_at};

/// Tags of the dynamic section (elf(5), `Elf64_Verneed` and `Elf64_Verdef`), which libc does not
/// have.
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;

/// `VER_FLG_WEAK`: if the version is missing, the loader only warns.
const WEAK: u16 = 2;

/// The most records of a list to examine; libibverbs has 20.
const MOST: usize = 1024;

/// A version that a library needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    /// The library that must define the version, by its name in DT_NEEDED.
    pub of: String,
    /// For example, `FABRIC_1.8`.
    pub version: String,
}

impl Elf<'_> {
    /// Returns the versions that this library needs from others.
    pub(crate) fn versions_needed(&self) -> Option<Vec<Needed>> {
        let (bytes, count, strings) = self.table_of_versions(DT_VERNEED, DT_VERNEEDNUM)?;
        let mut needed = Vec::new();
        let mut seen = 0;
        for record in (RecordChain { bytes: &bytes, at: 0, next: 12, left: count }) {
            let of = self.text(strings.checked_add(u32_at(&bytes, record + 4)?.into())?)?;
            let first = record.checked_add(usize::try_from(u32_at(&bytes, record + 8)?).ok()?)?;
            let left = usize::from(u16_at(&bytes, record + 2)?);
            for version in (RecordChain { bytes: &bytes, at: first, next: 12, left }) {
                seen += 1;
                if seen > MOST {
                    return Some(needed);
                }
                let name = self.text(strings.checked_add(u32_at(&bytes, version + 8)?.into())?)?;
                if u16_at(&bytes, version + 4)? & WEAK == 0 {
                    needed.push(Needed { of: of.clone(), version: name });
                }
            }
        }
        Some(needed)
    }

    /// Returns the versions that this library defines; `None` if it defines none, which the loader accepts as
    /// every version.
    pub(crate) fn versions_defined(&self) -> Option<Vec<String>> {
        let (bytes, count, strings) = self.table_of_versions(DT_VERDEF, DT_VERDEFNUM)?;
        let name = |record: usize| {
            let first = record.checked_add(usize::try_from(u32_at(&bytes, record + 12)?).ok()?)?;
            self.text(strings.checked_add(u32_at(&bytes, first)?.into())?)
        };
        Some(RecordChain { bytes: &bytes, at: 0, next: 16, left: count }.filter_map(name).collect())
    }

    /// Returns the bytes from the first record on, the number of records, and where the texts start in the
    /// file.
    fn table_of_versions(&self, at: u64, count: u64) -> Option<(Vec<u8>, usize, u64)> {
        let headers = self.program_headers()?;
        let entries = self.dynamic_entries(&headers)?;
        let value = |tag: u64| entries.iter().find(|(known, _)| *known == tag).map(|(_, value)| *value);
        let strings = Segment::offset_of(&headers, value(DT_STRTAB)?)?;
        let bytes = self.read(Segment::offset_of(&headers, value(at)?)?, LONGEST).ok()?;
        Some((bytes, usize::try_from(value(count)?).ok()?.min(MOST), strings))
    }
}

/// The offsets of records that each contain the distance to the next one.
struct RecordChain<'b> {
    bytes: &'b [u8],
    at: usize,
    /// The offset of that distance within a record.
    next: usize,
    left: usize,
}

impl Iterator for RecordChain<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.min(MOST).checked_sub(1)?;
        let at = self.at;
        let step = usize::try_from(u32_at(self.bytes, at.checked_add(self.next)?)?).ok()?;
        if step == 0 {
            self.left = 0;
        }
        self.at = at.checked_add(step)?;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::image::fake::{FakeLibrary, damaged};

    fn with<T>(bytes: &[u8], look: impl FnOnce(&Elf) -> T) -> Option<T> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Some(look(&Elf::open(&file).ok()?))
    }

    fn both() -> Vec<u8> {
        let library = FakeLibrary {
            needed: &["libfabric.so.1"],
            needs_version: Some(("libfabric.so.1", "FABRIC_1.8")),
            has_version: Some("PLUGIN_1"),
            ..Default::default()
        };
        library.bytes()
    }

    #[test]
    fn versions_are_found() {
        let needed = with(&both(), |elf| elf.versions_needed()).unwrap().unwrap();
        let wanted = Needed { of: "libfabric.so.1".to_owned(), version: "FABRIC_1.8".to_owned() };
        assert_eq!(needed, [wanted]);
        assert_eq!(with(&both(), |elf| elf.versions_defined()).unwrap().unwrap(), ["PLUGIN_1"]);
        let without = FakeLibrary::default().bytes();
        assert_eq!(with(&without, |elf| elf.versions_needed()).unwrap(), None);
        assert_eq!(with(&without, |elf| elf.versions_defined()).unwrap(), None);
    }

    /// Reading arbitrary bytes does not panic and terminates.
    #[test]
    fn damaged_version_tables_cause_no_panic() {
        let good = both();
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..2000 {
            with(&damaged(&good, &mut random), |elf| (elf.versions_needed(), elf.versions_defined()));
        }
    }
}
