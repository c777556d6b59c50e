//! Finds constant texts in a library.

use std::fs::File;
use std::ops::Range;

use super::elf::{Elf, read_at};

/// The number of bytes to read at a time. In a larger buffer, each additional page would cause a page fault
/// and be used only once.
const CHUNK: usize = 32 * 1024;

/// The number of bytes before and after the rare byte that `look` always sees.
const MARGIN: usize = 512;

/// Calls `look` at every occurrence of a byte that is rare in a library's texts, with the bytes before it and
/// the bytes from it on, until a call returns a result. Reads at most `most` bytes.
pub(super) fn scan<T>(
    file: &File,
    elf: &Elf,
    most: u64,
    rare: u8,
    mut look: impl FnMut(&[u8], &[u8]) -> Option<T>,
) -> Option<T> {
    let Range { start, end } = elf.texts(most);
    let longest = usize::try_from(end.saturating_sub(start)).unwrap_or(CHUNK).min(CHUNK);
    let mut buffer = vec![0; longest];
    let mut at = start;
    while at < end {
        let length = usize::try_from(end - at).unwrap_or(CHUNK).min(longest);
        let read = read_at(file, buffer.get_mut(..length)?, at).ok()?;
        let chunk = &buffer[..read];
        let found = memchr::memchr_iter(rare, chunk).find_map(|place| {
            let (before, after) = chunk.split_at(place);
            look(before, after)
        });
        if found.is_some() || read < CHUNK {
            return found;
        }
        at += (CHUNK - 2 * MARGIN) as u64;
    }
    None
}

/// Returns the version of the NCCL in a library, from a text such as `NCCL version 2.21.5+cuda12.4`, which
/// NCCL prints when it starts (`src/init.cc`, `VERSION_STRING`). In a library that contains only the format
/// string, no `+cuda` follows numbers.
pub(super) fn nccl_version(file: &File, elf: &Elf, most: u64) -> Option<String> {
    scan(file, elf, most, b'+', |before, after| {
        after.starts_with(b"+cuda").then_some(())?;
        let word = &before[before.len().saturating_sub(32)..];
        let start = word.iter().rposition(|byte| *byte == b' ')?;
        before[..before.len() - word.len() + start].ends_with(b"NCCL version").then_some(())?;
        three_numbers(std::str::from_utf8(&word[start + 1..]).ok()?)
    })
}

/// Returns the version of the RCCL in a library, from a text that RCCL prints when it starts (`src/init.cc`,
/// `VERSION_STRING`): `RCCL version 2.20.5+hip6.2` or, since ROCm 6.3, `RCCL version : 2.21.5`.
pub(super) fn rccl_version(file: &File, elf: &Elf, most: u64) -> Option<String> {
    scan(file, elf, most, b'R', |_, after| {
        let word = after.strip_prefix(b"RCCL version ")?;
        let word = word.strip_prefix(b": ").unwrap_or(word);
        let end = word.iter().take(32).position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        three_numbers(std::str::from_utf8(&word[..end]).ok()?)
    })
}

/// Returns the UCX version of a `libucp`: its only text of three numbers separated by dots
/// (`ucp_get_version_string` in `src/ucp/core/ucp_context.c`). The bytes of a binary number may directly
/// precede it.
pub(super) fn ucx_version(file: &File, elf: &Elf, most: u64) -> Option<String> {
    scan(file, elf, most, b'.', |before, after| {
        let before = before.strip_suffix(b"1")?;
        if before.last().is_some_and(|byte| is_of_version(*byte)) {
            return None;
        }
        let end = after.iter().take(16).position(|byte| !is_of_version(*byte))?;
        let text = std::str::from_utf8(&after[..end]).ok().filter(|_| after.get(end) == Some(&0))?;
        three_numbers(&format!("1{text}"))
    })
}

/// Returns the version of the NVSHMEM in a library, from the text that `nvshmem_info_get_name` returns:
/// `NVSHMEM v3.2.5` (`src/include/non_abi/nvshmem_version.h`, `NVSHMEM_VENDOR_STRING`).
pub(super) fn nvshmem_version(file: &File, elf: &Elf, most: u64) -> Option<String> {
    scan(file, elf, most, b'N', |_, after| {
        let word = after.strip_prefix(b"NVSHMEM v")?;
        let end = word.iter().take(16).position(|byte| *byte == 0)?;
        three_numbers(std::str::from_utf8(&word[..end]).ok()?)
    })
}

/// Returns the version of an aws-ofi-nccl, from a text that it prints when NCCL loads it (`src/nccl_ofi_net.cpp`,
/// `PACKAGE_STRING`): `Initializing aws-ofi-nccl 1.18.0`.
pub(super) fn ofi_version(file: &File, elf: &Elf, most: u64) -> Option<String> {
    scan(file, elf, most, b'-', |before, after| {
        let word = after.strip_prefix(b"-ofi-nccl ").filter(|_| before.ends_with(b"Initializing aws"))?;
        let end = word.iter().take(16).position(|byte| *byte == 0)?;
        three_numbers(std::str::from_utf8(&word[..end]).ok()?)
    })
}

fn is_of_version(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'.'
}

/// Returns `2.28.0` for `2.28.0` and for `2.28.0rc1`. A number that no version has, such as one of 24 digits, is none.
fn three_numbers(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let numbers = &text[..end];
    let parts = || numbers.split('.');
    (parts().count() == 3 && parts().all(|part| part.parse::<u32>().is_ok())).then(|| numbers.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::fake;
    use std::io::Write;

    type VersionReader = fn(&File, &Elf, u64) -> Option<String>;

    fn version(read: VersionReader, library: &fake::FakeLibrary, most: u64) -> Option<String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&library.bytes()).unwrap();
        read(&file, &Elf::open(&file).unwrap(), most)
    }

    fn of(read: VersionReader, texts: &[u8]) -> Option<String> {
        version(read, &fake::FakeLibrary { texts, ..Default::default() }, 1 << 24)
    }

    #[test]
    fn the_text_with_numbers_and_cuda_counts() {
        let found = |text: &str| of(nccl_version, text.as_bytes());
        assert_eq!(found("a+b\0NCCL version %s\0NCCL version 2.21.5+cuda12.4\0").unwrap(), "2.21.5");
        assert_eq!(found("NCCL version 2.28.0rc1+cuda13.0").unwrap(), "2.28.0");
        for text in [
            "NCCL version 2.21.5 compiled with CUDA 12.4",
            "NCCL version 2.21+cuda12.4",
            "NCCL version 2..5+cuda12.4",
            "NCCL version 2.21.777777777777777777777754+cuda12.4",
            "RCCL version 2.18.3+hip6.0",
            "NCCL version +cuda",
            "+cuda",
            "",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn rccl_has_had_two_forms_of_its_text() {
        let found = |texts: &str| of(rccl_version, texts.as_bytes());
        assert_eq!(found("R\0RCCL version %s\0RCCL version 2.13.4+hip5.7\0").unwrap(), "2.13.4");
        assert_eq!(found("RCCL version : 2.27.7\0").unwrap(), "2.27.7");
        for text in [
            "NCCL version 2.21.5+cuda12.4\0",
            "RCCL version : \0",
            "RCCL version 2.13\0",
            "RCCL version 2.13.4",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn ucx_has_its_version_as_a_text_of_its_own() {
        let found = |texts: &[u8]| of(ucx_version, texts);
        assert_eq!(found(b"e\xcd\xcdA1.13.1\0%s\n\0").unwrap(), "1.13.1");
        assert_eq!(found(b"a.b\0\x001.22.0\0").unwrap(), "1.22.0");
        for text in [&b"11.13.1\0"[..], b"1.13\0", b"1.13.1 \0", b"2.2.5\0", b"1.2.3.4\0", b"1..3\0"] {
            assert_eq!(found(text), None, "{text:?}");
        }
    }

    #[test]
    fn nvshmem_names_itself_with_its_version() {
        let found = |texts: &[u8]| of(nvshmem_version, texts);
        assert_eq!(found(b"NVSHMEM version in\0NVSHMEM v3.2.5\0").unwrap(), "3.2.5");
        for text in [&b"NVSHMEM v3.2\0"[..], b"NVSHMEM v%d.%d.%d\0", b"NVSHMEM v3.2.5", b"NVSHMEM 3.2.5\0"] {
            assert_eq!(found(text), None, "{text:?}");
        }
    }

    #[test]
    fn aws_ofi_nccl_prints_its_version() {
        let found = |texts: &[u8]| of(ofi_version, texts);
        assert_eq!(found(b"aws-ofi-nccl 1\0NET/OFI Initializing aws-ofi-nccl 1.18.0\0").unwrap(), "1.18.0");
        for text in
            [&b"Initializing aws-ofi-nccl GitHub-dev\0"[..], b"aws-ofi-nccl 1.18.0\0", b"x-ofi-nccl 1.18.0\0"]
        {
            assert_eq!(found(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_text_across_two_reads_is_found_and_one_beyond_the_bound_is_not() {
        for at in
            [0, CHUNK - 2 * MARGIN - 7, CHUNK - MARGIN, CHUNK - 30, CHUNK - 20, CHUNK - 7, CHUNK, 2 * CHUNK]
        {
            let mut texts = vec![b'.'; at];
            texts.extend(b"\0NCCL version 2.19.3+cuda12.3\0");
            assert_eq!(of(nccl_version, &texts).as_deref(), Some("2.19.3"), "{at}");
            let library = fake::FakeLibrary { texts: &texts, ..Default::default() };
            assert_eq!(version(nccl_version, &library, at as u64), None, "{at}");
        }
    }

    #[test]
    fn without_section_headers_the_start_is_searched() {
        let texts = b"NCCL version 2.19.3+cuda12.3";
        let library = fake::FakeLibrary { texts, without_sections: true, ..Default::default() };
        assert_eq!(version(nccl_version, &library, 1 << 24).as_deref(), Some("2.19.3"));
    }
}
