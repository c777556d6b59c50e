//! Reads shared libraries in parts: even of a library of 450 MB, it reads only the headers, the dynamic
//! section and the place of its texts. elf(5) describes the format; libc's structs give the layout of the
//! records.

mod pointers;
mod versions;

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::libc::{EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3};
use nix::libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr, PT_DYNAMIC, PT_INTERP, PT_LOAD};

use super::architecture::{OURS, named};
use super::bytes::{text_at, u8_at, u16_at, u32_at, u64_at};

/// In bytes: the sizes of the file header, a program header, a section header, and an entry of the dynamic
/// section.
const HEADER: usize = size_of::<Elf64_Ehdr>();
const PROGRAM_HEADER: usize = size_of::<Elf64_Phdr>();
const SECTION_HEADER: usize = size_of::<Elf64_Shdr>();
const DYNAMIC_ENTRY: usize = size_of::<DynamicEntry>();

/// The most headers to read from a table; no library has that many.
const MOST_HEADERS: u16 = 1024;

/// In bytes: the most to read of the dynamic section, or of the section names; no library has that many.
const LONGEST: u64 = 64 * 1024;

/// In bytes: how much of the file's start to search for texts if no section header locates them.
const START: u64 = 8 * 1024 * 1024;

/// `Elf64_Dyn` of elf(5), which libc does not have. Only its layout is used.
#[repr(C)]
struct DynamicEntry {
    tag: u64,
    value: u64,
}

/// Tags of the dynamic section (elf(5)), which libc does not have.
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// An ELF file of this program's architecture.
pub(crate) struct Elf<'a> {
    file: &'a File,
    header: [u8; HEADER],
}

/// Why this machine's dynamic loader cannot load a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Not {
    /// The file is for another machine, so the loader skips it. The name is set if rdma-init is also built
    /// for that architecture.
    OurMachine(Option<&'static str>),
    /// The file is not an ELF file.
    Elf,
}

/// The dynamic section of a library, which the dynamic loader reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    pub needed: Vec<String>,
    /// As written in the file, with `$ORIGIN` and colons.
    pub rpath: Option<String>,
    pub runpath: Option<String>,
}

impl<'a> Elf<'a> {
    /// # Errors
    /// Returns why the dynamic loader cannot load the file.
    pub(crate) fn open(file: &'a File) -> Result<Elf<'a>, Not> {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).map_err(|_| Not::Elf)?;
        if !header.starts_with(&[ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3]) {
            return Err(Not::Elf);
        }
        let alike =
            u8_at(&header, EI_CLASS) == Some(ELFCLASS64) && u8_at(&header, EI_DATA) == Some(ELFDATA2LSB);
        match u16_at(&header, offset_of!(Elf64_Ehdr, e_machine)).filter(|_| alike) {
            Some(machine) if machine == OURS.machine => Ok(Elf { file, header }),
            machine => Err(Not::OurMachine(machine.and_then(named))),
        }
    }

    /// Returns the dynamic section, which it finds through the program headers, as the loader does.
    pub(crate) fn dynamic(&self) -> Option<Dynamic> {
        let headers = self.program_headers()?;
        let entries = self.dynamic_entries(&headers)?;
        let address = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?.1;
        let strings = Segment::offset_of(&headers, address)?;
        let mut found = Dynamic::default();
        for (tag, offset) in entries {
            let text = || self.text(strings.checked_add(offset)?);
            match tag {
                DT_NEEDED => found.needed.extend(text()),
                DT_RPATH => found.rpath = text(),
                DT_RUNPATH => found.runpath = text(),
                _ => {}
            }
        }
        Some(found)
    }

    /// Returns the entries of the dynamic section, each a tag and its value.
    fn dynamic_entries(&self, program_headers: &[u8]) -> Option<Vec<(u64, u64)>> {
        let mut segments = program_headers.chunks_exact(PROGRAM_HEADER);
        let dynamic = segments.find(|segment| kind_of(segment) == Some(PT_DYNAMIC))?;
        let Segment { offset, size, .. } = Segment::of(dynamic)?;
        let section = self.read(offset, size.min(LONGEST)).ok()?;
        let entry = |bytes: &[u8]| {
            let tag = u64_at(bytes, offset_of!(DynamicEntry, tag))?;
            Some((tag, u64_at(bytes, offset_of!(DynamicEntry, value))?))
        };
        let entries = section.chunks_exact(DYNAMIC_ENTRY).filter_map(entry);
        Some(entries.take_while(|(tag, _)| *tag != DT_NULL).collect())
    }

    /// Returns the dynamic loader with which the kernel starts this program; `None` if the program is static.
    pub(crate) fn interpreter(&self) -> Option<String> {
        let headers = self.program_headers()?;
        let mut segments = headers.chunks_exact(PROGRAM_HEADER);
        let segment = segments.find(|segment| kind_of(segment) == Some(PT_INTERP))?;
        self.text(u64_at(segment, offset_of!(Elf64_Phdr, p_offset))?)
    }

    /// Returns the file's byte range that contains its texts, at most `most` bytes: `.rodata`, or the start
    /// of the file if no section header locates it.
    pub(crate) fn texts(&self, most: u64) -> Range<u64> {
        let (start, length) = self.section(b".rodata").unwrap_or((0, START));
        start..start.saturating_add(length.min(most))
    }

    /// Returns the offset and the length in bytes of the section with this name.
    fn section(&self, name: &[u8]) -> Option<(u64, u64)> {
        let headers = self.table(&TableFields {
            offset: offset_of!(Elf64_Ehdr, e_shoff),
            entry_size: offset_of!(Elf64_Ehdr, e_shentsize),
            count: offset_of!(Elf64_Ehdr, e_shnum),
            size: SECTION_HEADER,
        })?;
        let sections = || headers.chunks_exact(SECTION_HEADER);
        let place = |section: &[u8]| {
            let offset = u64_at(section, offset_of!(Elf64_Shdr, sh_offset))?;
            Some((offset, u64_at(section, offset_of!(Elf64_Shdr, sh_size))?))
        };
        let names = u16_at(&self.header, offset_of!(Elf64_Ehdr, e_shstrndx))?;
        let (start, length) = place(sections().nth(names.into())?)?;
        let names = self.read(start, length.min(LONGEST)).ok()?;
        sections().find_map(|section| {
            let at = usize::try_from(u32_at(section, offset_of!(Elf64_Shdr, sh_name))?).ok()?;
            (text_at(&names, at)?.as_bytes() == name).then(|| place(section))?
        })
    }

    fn program_headers(&self) -> Option<Vec<u8>> {
        self.table(&TableFields {
            offset: offset_of!(Elf64_Ehdr, e_phoff),
            entry_size: offset_of!(Elf64_Ehdr, e_phentsize),
            count: offset_of!(Elf64_Ehdr, e_phnum),
            size: PROGRAM_HEADER,
        })
    }

    /// Returns the bytes of a table of headers.
    fn table(&self, fields: &TableFields) -> Option<Vec<u8>> {
        if usize::from(u16_at(&self.header, fields.entry_size)?) != fields.size {
            return None;
        }
        let count = u16_at(&self.header, fields.count)?.min(MOST_HEADERS);
        self.read(u64_at(&self.header, fields.offset)?, u64::from(count) * fields.size as u64).ok()
    }

    /// Returns the text at this offset. Tries a short read first, because only an RPATH is long.
    fn text(&self, at: u64) -> Option<String> {
        [256, 4096].into_iter().find_map(|most| text_at(&self.read(at, most).ok()?, 0).map(str::to_owned))
    }

    fn read(&self, at: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        let read = read_at(self.file, &mut bytes, at)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// Where the file header describes a table of headers, and the size that each header must have.
struct TableFields {
    offset: usize,
    entry_size: usize,
    count: usize,
    size: usize,
}

/// A part of the file and the address at which the loader maps it.
struct Segment {
    /// The offset in the file.
    offset: u64,
    /// Bytes in the file.
    size: u64,
    address: u64,
}

impl Segment {
    fn of(program_header: &[u8]) -> Option<Segment> {
        Some(Segment {
            offset: u64_at(program_header, offset_of!(Elf64_Phdr, p_offset))?,
            size: u64_at(program_header, offset_of!(Elf64_Phdr, p_filesz))?,
            address: u64_at(program_header, offset_of!(Elf64_Phdr, p_vaddr))?,
        })
    }

    /// Returns the file offset of the byte that the loader maps at this address.
    fn offset_of(program_headers: &[u8], address: u64) -> Option<u64> {
        let segments = program_headers.chunks_exact(PROGRAM_HEADER);
        segments.filter(|segment| kind_of(segment) == Some(PT_LOAD)).find_map(|segment| {
            let segment = Segment::of(segment)?;
            let within = address.checked_sub(segment.address)?;
            (within < segment.size).then_some(())?;
            segment.offset.checked_add(within)
        })
    }
}

/// Returns the kind of a segment, such as `PT_LOAD`.
fn kind_of(program_header: &[u8]) -> Option<u32> {
    u32_at(program_header, offset_of!(Elf64_Phdr, p_type))
}

/// Fills the bytes from this offset of the file, up to its end. Returns how many were read.
pub(crate) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::fake;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn torch() -> Vec<u8> {
        let texts = b"texts";
        let needed = &["libc10.so", "libnccl.so.2"];
        fake::FakeLibrary { needed, rpath: Some("$ORIGIN"), texts, ..Default::default() }.bytes()
    }

    #[test]
    fn the_dynamic_section_and_the_texts_are_found() {
        let long = "/x".repeat(500);
        let bytes = torch();
        let read = file(&bytes);
        let elf = Elf::open(&read).unwrap();
        let dynamic = elf.dynamic().unwrap();
        assert_eq!(dynamic.needed, ["libc10.so", "libnccl.so.2"]);
        assert_eq!((dynamic.rpath.as_deref(), dynamic.runpath), (Some("$ORIGIN"), None));
        let texts = elf.texts(64);
        assert_eq!(&bytes[texts.start as usize..texts.end as usize], b"texts");
        assert_eq!(elf.texts(2).end - texts.start, 2);

        let library =
            fake::FakeLibrary { runpath: Some(&long), without_sections: true, ..Default::default() };
        let read = file(&library.bytes());
        let elf = Elf::open(&read).unwrap();
        assert_eq!(elf.dynamic().unwrap().runpath, Some(long));
        assert_eq!(elf.texts(u64::MAX), 0..START);
    }

    #[test]
    fn what_is_not_for_this_machine_is_told_apart() {
        let elf = |change: fn(&mut Vec<u8>)| {
            let mut bytes = torch();
            change(&mut bytes);
            let file = file(&bytes);
            Elf::open(&file).err()
        };
        assert_eq!(elf(|_| {}), None);
        assert_eq!(elf(|bytes| bytes[4] = 1), Some(Not::OurMachine(None)));
        assert_eq!(elf(|bytes| bytes[5] = 2), Some(Not::OurMachine(None)));
        // A machine number that no processor has.
        assert_eq!(elf(|bytes| bytes[18] = 0xff), Some(Not::OurMachine(None)));
        let other = if OURS.name == "x86_64" { "aarch64" } else { "x86_64" };
        assert_eq!(elf(|bytes| fake::turn(bytes)), Some(Not::OurMachine(Some(other))));
        assert_eq!(elf(|bytes| bytes[0] = b'!'), Some(Not::Elf));
        assert_eq!(elf(|bytes| bytes.truncate(63)), Some(Not::Elf));
        assert_eq!(elf(Vec::clear), Some(Not::Elf));
    }

    /// Reading arbitrary bytes does not panic and takes no more memory than the limits allow.
    #[test]
    fn damaged_elf_files_cause_no_panic() {
        let good = torch();
        for length in 64..good.len() {
            let file = file(&good[..length]);
            let elf = Elf::open(&file).unwrap();
            elf.dynamic();
            elf.texts(1 << 20);
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let file = file(&fake::damaged(&good, &mut random));
            let elf = Elf::open(&file).unwrap();
            elf.dynamic();
            let texts = elf.texts(1 << 20);
            assert!(texts.end.saturating_sub(texts.start) <= START);
        }
    }
}
