//! `/etc/ld.so.cache`, which ldconfig(8) writes and the glibc dynamic loader consults before it searches
//! directories (glibc, `sysdeps/generic/dl-cache.h`). musl has no such cache.

use std::path::{Path, PathBuf};

use super::architecture::OURS;
use super::bytes::{LONGEST_PATH, text_within, u8_at, u32_at, u64_at};
use super::tree::Tree;
use crate::facts::reader::Reader;

const FILE: &str = "/etc/ld.so.cache";

/// In bytes: the largest cache to read. A large image has a cache of 200 KB.
const LONGEST: u64 = 8 * 1024 * 1024;

/// The most entries to examine; a large image has a few thousand.
const ENTRIES: usize = 65_536;

/// The most entries to keep. Many entries may share one long text, and separate copies of it would take far
/// more memory than the file.
pub(super) const KEPT: usize = 512;

/// In bytes: the longest name of a library (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";

/// The sizes in bytes of `struct cache_file_new` and of each `struct file_entry_new`.
const NEW_HEADER: usize = 48;
const NEW_ENTRY: usize = 24;

/// The sizes in bytes of `struct cache_file` and of each `struct file_entry`.
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;

/// A library's name and its file, in the cache's order: if two entries have the same name, the loader takes
/// the first.
pub(super) type Entry = (String, PathBuf);

/// Returns the entries whose names matter, or an empty list if there is no cache.
pub(super) fn read(reader: &Reader, tree: &Tree, matters: impl Fn(&str) -> bool) -> Vec<Entry> {
    let Some(real) = tree.real(Path::new(FILE)) else { return Vec::new() };
    let Some(bytes) = reader.bytes(&real, LONGEST) else { return Vec::new() };
    parse(&bytes, &matters).unwrap_or_else(|| {
        tree.remember(&real, "it is not a cache that the dynamic loader would use");
        Vec::new()
    })
}

pub(super) fn parse(bytes: &[u8], matters: &dyn Fn(&str) -> bool) -> Option<Vec<Entry>> {
    let cache = new_format(bytes)?;
    // Byte order: 0 unset, 2 little (`cache_file_new_flags_endian_little`).
    if !matches!(u8_at(cache, 28)? & 3, 0 | 2) {
        return None;
    }
    let count = usize::try_from(u32_at(cache, 20)?).ok()?;
    let entries = cache.get(NEW_HEADER..)?.chunks_exact(NEW_ENTRY).take(count.min(ENTRIES));
    Some(entries.filter_map(|entry| library(cache, entry, matters)).take(KEPT).collect())
}

/// Returns the cache in the new format, which may follow one in the old format.
fn new_format(bytes: &[u8]) -> Option<&[u8]> {
    let start = if bytes.starts_with(OLD_MAGIC) {
        let count = usize::try_from(u32_at(bytes, 12)?).ok()?;
        count.checked_mul(OLD_ENTRY)?.checked_add(OLD_HEADER)?.checked_next_multiple_of(8)?
    } else {
        0
    };
    bytes.get(start..).filter(|rest| rest.starts_with(NEW_MAGIC))
}

/// Returns the name and file of an entry. Offsets count from the start of the new format.
fn library(cache: &[u8], entry: &[u8], matters: &dyn Fn(&str) -> bool) -> Option<Entry> {
    // An entry for a `glibc-hwcaps` directory, which applies only to some processors, has a hwcap mask.
    if u32_at(entry, 0)? != OURS.cache_flags || u64_at(entry, 16)? != 0 {
        return None;
    }
    let text = |at: usize, longest| text_within(cache, usize::try_from(u32_at(entry, at)?).ok()?, longest);
    let name = text(4, LONGEST_NAME).filter(|name| matters(name))?;
    let path = text(8, LONGEST_PATH).filter(|path| path.starts_with('/'))?;
    Some((name.to_owned(), PathBuf::from(path)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a cache in the new format. Each entry: flags, hwcap, name, path.
    pub(crate) fn cache(entries: &[(u32, u64, &str, &str)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut table = Vec::new();
        let start = NEW_HEADER + entries.len() * NEW_ENTRY;
        for (flags, hwcap, name, path) in entries {
            let mut put = |text: &str| {
                let at = u32::try_from(start + strings.len()).unwrap();
                strings.extend(text.bytes().chain([0]));
                at
            };
            let (name, path) = (put(name), put(path));
            for word in [*flags, name, path, 0] {
                table.extend(word.to_le_bytes());
            }
            table.extend(hwcap.to_le_bytes());
        }
        let mut bytes = NEW_MAGIC.to_vec();
        for word in [entries.len() as u32, strings.len() as u32, 2, 0, 0, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        [bytes, table, strings].concat()
    }

    /// Returns a cache in the new format that follows an old one with this many entries.
    pub(crate) fn after_old(count: u32, new: &[u8]) -> Vec<u8> {
        let mut bytes = OLD_MAGIC.to_vec();
        bytes.resize(12, 0);
        bytes.extend(count.to_le_bytes());
        bytes.resize((OLD_HEADER + OLD_ENTRY * count as usize).next_multiple_of(8), 0xee);
        bytes.extend(new);
        bytes
    }

    fn names(bytes: &[u8]) -> Option<Vec<String>> {
        let entries = parse(bytes, &|name| name.starts_with("libnccl"))?;
        Some(entries.into_iter().map(|(name, path)| format!("{name} {}", path.display())).collect())
    }

    #[test]
    fn entries_of_this_architecture_are_read_from_both_formats() {
        let new = cache(&[
            (3, 0, "libnccl.so.2", "/lib32/libnccl.so.2"),
            // An entry for the other architecture.
            (OURS.cache_flags ^ 0x0900, 0, "libnccl.so.2", "/other/libnccl.so.2"),
            (OURS.cache_flags, 1 << 62, "libnccl.so.2", "/lib/glibc-hwcaps/x86-64-v3/libnccl.so.2"),
            (OURS.cache_flags, 0, "libnccl.so.2", "/a/libnccl.so.2"),
            (OURS.cache_flags, 0, "libc.so.6", "/lib/libc.so.6"),
            (OURS.cache_flags, 0, "libnccl.so.2", "/b/libnccl.so.2"),
        ]);
        let wanted = ["libnccl.so.2 /a/libnccl.so.2", "libnccl.so.2 /b/libnccl.so.2"];
        assert_eq!(names(&new).unwrap(), wanted);
        for count in [0, 1, 2, 3] {
            assert_eq!(names(&after_old(count, &new)).unwrap(), wanted);
        }
    }

    /// Many entries of a cache may point to the same long text.
    #[test]
    fn no_more_is_kept_than_an_image_has() {
        let path = format!("/{}", "x".repeat(LONGEST_PATH - 2));
        let entry = (OURS.cache_flags, 0, "libnccl.so.2", path.as_str());
        let mut bytes = cache(&[entry]);
        let one = bytes[NEW_HEADER..NEW_HEADER + NEW_ENTRY].to_vec();
        let texts = bytes.split_off(NEW_HEADER + NEW_ENTRY);
        let count = KEPT * 8;
        bytes.extend(one.repeat(count - 1));
        bytes[20..24].copy_from_slice(&u32::try_from(count).unwrap().to_le_bytes());
        let moved = u32::try_from((count - 1) * NEW_ENTRY).unwrap();
        for entry in bytes[NEW_HEADER..].chunks_exact_mut(NEW_ENTRY) {
            for at in [4, 8] {
                let offset = u32_at(entry, at).unwrap() + moved;
                entry[at..at + 4].copy_from_slice(&offset.to_le_bytes());
            }
        }
        bytes.extend(&texts);
        let found = names(&bytes).unwrap();
        assert_eq!((found.len(), found[0].len()), (KEPT, "libnccl.so.2 ".len() + path.len()));
        // A name longer than any file name can be.
        let long = format!("libnccl.so.{}", "2".repeat(LONGEST_NAME));
        assert_eq!(names(&cache(&[(OURS.cache_flags, 0, &long, "/a")])).unwrap(), [""; 0]);
    }

    #[test]
    fn what_points_outside_is_left_out() {
        let good = cache(&[(OURS.cache_flags, 0, "libnccl.so.2", "/a/libnccl.so.2")]);
        for at in [NEW_HEADER + 4, NEW_HEADER + 8] {
            for offset in [u32::MAX, good.len() as u32, 0x7fff_ffff] {
                let mut bytes = good.clone();
                bytes[at..at + 4].copy_from_slice(&offset.to_le_bytes());
                assert_eq!(names(&bytes).unwrap(), [""; 0], "{at} {offset}");
            }
        }
        // A cache that claims more entries than it has, and every truncation of a good one.
        let mut many = good.clone();
        many[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(names(&many).unwrap().len(), 1);
        for length in 0..good.len() {
            assert_eq!(names(&good[..length]).unwrap_or_default(), [""; 0], "{length}");
        }
        let mut old = after_old(1, &good);
        for count in [u32::MAX, 2, 0] {
            old[12..16].copy_from_slice(&count.to_le_bytes());
            assert_eq!(names(&old), None, "{count}");
        }
        let mut big_endian = good.clone();
        big_endian[28] = 3;
        assert_eq!(names(&big_endian), None);
        assert_eq!(names(b"garbage"), None);
        assert_eq!(names(b""), None);
    }
}
