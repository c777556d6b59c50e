//! Shared libraries, read in parts: of a library of 450 MB only the headers, the
//! dynamic section, and where its texts are (elf(5)).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::bytes::{text_at, u16_at, u32_at, u64_at};

/// Bytes of the file header, of a program header and of a section header.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;

/// More headers than a library has.
const MOST_HEADERS: u16 = 1024;

/// Bytes, more than there are in a dynamic section or in the names of the sections.
const LONGEST: u64 = 64 * 1024;

/// Bytes that are searched where no section header tells where the texts are.
const START: u64 = 8 * 1024 * 1024;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// An x86-64 ELF file.
pub struct Elf<'a> {
    file: &'a File,
    header: [u8; HEADER],
}

/// Why a file is not one that this machine's loader could take.
#[derive(Debug, PartialEq, Eq)]
pub enum Not {
    /// It is for another machine, and the loader passes over it.
    OurMachine,
    /// It is no ELF file.
    Elf,
}

/// What the dynamic loader is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    pub needed: Vec<String>,
    /// As written, with `$ORIGIN` and colons.
    pub rpath: Option<String>,
    pub runpath: Option<String>,
}

impl<'a> Elf<'a> {
    /// # Errors
    /// What the file is not.
    pub fn open(file: &'a File) -> Result<Elf<'a>, Not> {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).map_err(|_| Not::Elf)?;
        if !header.starts_with(b"\x7fELF") {
            return Err(Not::Elf);
        }
        // ELFCLASS64, ELFDATA2LSB, EM_X86_64.
        let ours = header[4] == 2 && header[5] == 1 && u16_at(&header, 18) == Some(62);
        if ours { Ok(Elf { file, header }) } else { Err(Not::OurMachine) }
    }

    /// The dynamic section, found as the loader finds it, by the program headers.
    pub fn dynamic(&self) -> Option<Dynamic> {
        let headers = self.table(32, 54, PROGRAM_HEADER)?;
        let segments = || headers.chunks_exact(PROGRAM_HEADER);
        let is = |kind: u32| move |segment: &&[u8]| u32_at(segment, 0) == Some(kind);
        let dynamic = segments().find(is(PT_DYNAMIC))?;
        let section = self.read(u64_at(dynamic, 8)?, u64_at(dynamic, 32)?.min(LONGEST)).ok()?;
        let entries: Vec<(u64, u64)> = section
            .chunks_exact(16)
            .filter_map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)))
            .take_while(|(tag, _)| *tag != DT_NULL)
            .collect();
        let address = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?.1;
        let strings = segments().filter(is(PT_LOAD)).find_map(|segment| {
            let within = address.checked_sub(u64_at(segment, 16)?)?;
            (within < u64_at(segment, 32)?).then_some(())?;
            u64_at(segment, 8)?.checked_add(within)
        })?;
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

    /// The dynamic loader that the kernel starts it with; `None` where it is static.
    pub fn interpreter(&self) -> Option<String> {
        let headers = self.table(32, 54, PROGRAM_HEADER)?;
        let mut segments = headers.chunks_exact(PROGRAM_HEADER);
        self.text(u64_at(segments.find(|segment| u32_at(segment, 0) == Some(PT_INTERP))?, 8)?)
    }

    /// Where the file has its texts, in bytes from its start and at most this many:
    /// `.rodata`, or the file's start where no section header tells.
    pub fn texts(&self, most: u64) -> Range<u64> {
        let (start, length) = self.section(b".rodata").unwrap_or((0, START));
        start..start.saturating_add(length.min(most))
    }

    /// Offset and length in bytes.
    fn section(&self, name: &[u8]) -> Option<(u64, u64)> {
        let headers = self.table(40, 58, SECTION_HEADER)?;
        let sections = || headers.chunks_exact(SECTION_HEADER);
        let place = |section: &[u8]| Some((u64_at(section, 24)?, u64_at(section, 32)?));
        let (start, length) = place(sections().nth(u16_at(&self.header, 62)?.into())?)?;
        let names = self.read(start, length.min(LONGEST)).ok()?;
        sections().find_map(|section| {
            let at = usize::try_from(u32_at(section, 0)?).ok()?;
            (text_at(&names, at)?.as_bytes() == name).then(|| place(section))?
        })
    }

    /// A table of headers: the file header has its offset, the size of each and their
    /// number at these places.
    fn table(&self, offset_at: usize, size_at: usize, size: usize) -> Option<Vec<u8>> {
        if usize::from(u16_at(&self.header, size_at)?) != size {
            return None;
        }
        let count = u16_at(&self.header, size_at + 2)?.min(MOST_HEADERS);
        self.read(u64_at(&self.header, offset_at)?, u64::from(count) * size as u64).ok()
    }

    /// An RPATH may be long; names are short.
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

/// As much as there is.
pub fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
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
    use crate::facts::image::fake;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn torch() -> Vec<u8> {
        let texts = b"texts";
        let needed = &["libc10.so", "libnccl.so.2"];
        fake::Library { needed, rpath: Some("$ORIGIN"), texts, ..Default::default() }.bytes()
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

        let library = fake::Library { runpath: Some(&long), without_sections: true, ..Default::default() };
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
        assert_eq!(elf(|bytes| bytes[4] = 1), Some(Not::OurMachine));
        assert_eq!(elf(|bytes| bytes[5] = 2), Some(Not::OurMachine));
        assert_eq!(elf(|bytes| bytes[18] = 183), Some(Not::OurMachine));
        assert_eq!(elf(|bytes| bytes[0] = b'!'), Some(Not::Elf));
        assert_eq!(elf(|bytes| bytes.truncate(63)), Some(Not::Elf));
        assert_eq!(elf(Vec::clear), Some(Not::Elf));
    }

    /// Whatever is in it: no panic, and no more memory than the bounds allow.
    #[test]
    fn broken_files_tell_less() {
        let good = torch();
        for length in 64..good.len() {
            let file = file(&good[..length]);
            let elf = Elf::open(&file).unwrap();
            elf.dynamic();
            elf.texts(1 << 20);
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..8) {
                let at = random.usize(20..bytes.len());
                bytes[at] = random.u8(..);
            }
            let file = file(&bytes);
            let elf = Elf::open(&file).unwrap();
            elf.dynamic();
            let texts = elf.texts(1 << 20);
            assert!(texts.end.saturating_sub(texts.start) <= START);
        }
    }
}
