//! Whether the shared object that a start has left can still be loaded.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The file at the path that NCCL was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisk {
    /// It is as long as it says.
    Whole,
    /// It is not there, or is no ELF file: NCCL goes on without it.
    NotLoaded,
    /// The dynamic loader maps parts that the file does not have, and touching them ends the process (SIGBUS).
    Cut,
}

/// A release leaves a library that ends with its section headers, so the first 64 bytes tell the length
/// for the libraries of all releases.
pub(crate) fn on_disk(path: &Path) -> OnDisk {
    let mut header = [0; 64];
    let Ok(mut file) = File::open(path) else { return OnDisk::NotLoaded };
    let length = file.metadata().map_or(0, |status| status.len());
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"\x7fELF") {
        // The loader reads the header, which fails without a signal.
        return OnDisk::NotLoaded;
    }
    if says(&header).is_some_and(|says| says <= length) { OnDisk::Whole } else { OnDisk::Cut }
}

/// The end of the section headers: `e_shoff + e_shnum * e_shentsize` of elf(5).
fn says(header: &[u8; 64]) -> Option<u64> {
    let half = |at: usize| Some(u64::from(u16::from_le_bytes(*header.get(at..)?.first_chunk()?)));
    let start = u64::from_le_bytes(*header.get(40..)?.first_chunk()?);
    start.checked_add(half(60)? * half(58)?)
}

#[cfg(test)]
mod tests {
    use super::super::LIBRARY;
    use super::*;
    use std::fs;

    #[test]
    fn a_cut_library_is_told_from_one_that_is_not_loaded() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("library.so");
        assert_eq!(on_disk(&path), OnDisk::NotLoaded);
        for (length, wanted) in [
            (LIBRARY.len(), OnDisk::Whole),
            (LIBRARY.len() - 1, OnDisk::Cut),
            (LIBRARY.len() / 2, OnDisk::Cut),
            (64, OnDisk::Cut),
            (63, OnDisk::NotLoaded),
            (0, OnDisk::NotLoaded),
        ] {
            fs::write(&path, &LIBRARY[..length]).unwrap();
            assert_eq!(on_disk(&path), wanted, "{length}");
        }
        fs::write(&path, vec![b'x'; 5000]).unwrap();
        assert_eq!(on_disk(&path), OnDisk::NotLoaded);
    }
}
