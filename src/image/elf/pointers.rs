//! The pointers in a library's data. In the file they are blank, or relative to the address at which the
//! library will be loaded; the loader's relocations show what they point to.

use std::collections::BTreeMap;
use std::mem::offset_of;

use nix::libc::{Elf64_Phdr, PF_W, PT_LOAD};

use super::{Elf, LONGEST, PROGRAM_HEADER, Segment, kind_of};
use crate::image::bytes::{u32_at, u64_at};

/// Tags of the dynamic section that locate relocations (elf(5); for DT_RELR, glibc's elf.h).
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;

/// The relocation of a pointer into the library itself: R_X86_64_RELATIVE, R_AARCH64_RELATIVE.
const RELATIVE: [u64; 2] = [8, 1027];

/// The size in bytes of an `Elf64_Rela`: offset, info, addend.
const RELA: usize = 24;

/// The size of a pointer in bytes.
const POINTER: u64 = 8;

/// In bytes: the most to read of an unpacked relocation table; a libibverbs provider has ten thousand.
const LONGEST_TABLE: u64 = 1024 * 1024;

/// In bytes: the most to read of the data; a libibverbs provider has a few thousand.
const LONGEST_DATA: u64 = 1024 * 1024;

/// The most pointers to keep.
const MOST: usize = 64 * 1024;

/// The data of a library, and what its pointers point to.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// The writable segments, each with the address of its first byte.
    segments: Vec<(u64, Vec<u8>)>,
    /// The addresses of pointers into the library, each with the address that it points to.
    pub pointers: BTreeMap<u64, u64>,
}

impl Data {
    /// Returns the 32-bit number at an address.
    pub(crate) fn number(&self, address: u64) -> Option<u32> {
        self.within(address).and_then(|(bytes, at)| u32_at(bytes, at))
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.within(address).and_then(|(bytes, at)| u64_at(bytes, at))
    }

    fn within(&self, address: u64) -> Option<(&[u8], usize)> {
        self.segments.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            (at < bytes.len()).then_some((bytes.as_slice(), at))
        })
    }

    fn add(&mut self, address: u64, target: Option<u64>) {
        if let Some(target) = target
            && self.pointers.len() < MOST
        {
            self.pointers.insert(address, target);
        }
    }

    /// Adds the pointers of a packed table (`SHT_RELR` of the generic ABI). An even word is the address of a
    /// pointer. In the odd words after it, each bit except the lowest stands for one of the next 63 places.
    /// The place itself contains the pointer's target.
    fn add_packed(&mut self, table: &[u8]) {
        let mut next = 0u64;
        for word in table.chunks_exact(8).filter_map(|bytes| u64_at(bytes, 0)) {
            if word & 1 == 0 {
                self.add(word, self.word(word));
                next = word.saturating_add(POINTER);
                continue;
            }
            for bit in (1..64).filter(|bit| word >> bit & 1 == 1) {
                let address = next.saturating_add((bit - 1) * POINTER);
                self.add(address, self.word(address));
            }
            next = next.saturating_add(63 * POINTER);
        }
    }
}

impl Elf<'_> {
    /// Returns the library's data; `None` if its headers are invalid.
    pub(crate) fn data(&self) -> Option<Data> {
        let headers = self.program_headers()?;
        let is_data = |header: &&[u8]| {
            let flags = u32_at(header, offset_of!(Elf64_Phdr, p_flags)).unwrap_or_default();
            kind_of(header) == Some(PT_LOAD) && flags & PF_W != 0
        };
        let mut data = Data::default();
        let mut room = LONGEST_DATA;
        for segment in headers.chunks_exact(PROGRAM_HEADER).filter(is_data).filter_map(Segment::of) {
            let bytes = self.read(segment.offset, segment.size.min(room)).ok()?;
            room -= bytes.len() as u64;
            data.segments.push((segment.address, bytes));
        }
        let entries = self.dynamic_entries(&headers)?;
        let table = |at: u64, size: u64, most: u64| {
            let value = |tag: u64| entries.iter().find(|(known, _)| *known == tag).map(|(_, value)| *value);
            let offset = Segment::offset_of(&headers, value(at)?)?;
            self.read(offset, value(size)?.min(most)).ok()
        };
        for entry in table(DT_RELA, DT_RELASZ, LONGEST_TABLE).unwrap_or_default().chunks_exact(RELA) {
            let (address, kind) = (u64_at(entry, 0)?, u64_at(entry, 8)?);
            if RELATIVE.contains(&kind) {
                data.add(address, u64_at(entry, 16));
            }
        }
        data.add_packed(&table(DT_RELR, DT_RELRSZ, LONGEST).unwrap_or_default());
        Some(data)
    }

    /// Returns the text at this address in the loaded library.
    pub(crate) fn text_at_address(&self, address: u64) -> Option<String> {
        self.text(Segment::offset_of(&self.program_headers()?, address)?)
    }
}
