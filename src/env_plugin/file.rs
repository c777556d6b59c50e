//! Checks whether the shared object that a start wrote can still be loaded.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Returns whether the file at the path that NCCL was given is complete. If it is not, the dynamic loader
/// refuses it, and NCCL continues without it: the loader first reads the program headers, which are the
/// library's last bytes.
pub(crate) fn is_whole(path: &Path) -> bool {
    let mut header = [0; 64];
    let Ok(mut file) = File::open(path) else { return false };
    let length = file.metadata().map_or(0, |status| status.len());
    let is_read = file.read_exact(&mut header).is_ok() && header.starts_with(b"\x7fELF");
    is_read && end(&header).is_some_and(|end| end <= length)
}

/// Returns the end of the program headers: `e_phoff + e_phnum * e_phentsize` of elf(5).
fn end(header: &[u8; 64]) -> Option<u64> {
    let half = |at: usize| Some(u64::from(u16::from_le_bytes(*header.get(at..)?.first_chunk()?)));
    let start = u64::from_le_bytes(*header.get(32..)?.first_chunk()?);
    start.checked_add(half(56)? * half(54)?)
}

#[cfg(test)]
mod tests {
    use super::super::LIBRARY;
    use super::*;
    use std::fs;

    #[test]
    fn a_library_that_has_lost_one_byte_is_not_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("library.so");
        assert!(!is_whole(&path));
        for lost in [0, 1, LIBRARY.len() / 2, LIBRARY.len() - 64, LIBRARY.len() - 63, LIBRARY.len()] {
            fs::write(&path, &LIBRARY[..LIBRARY.len() - lost]).unwrap();
            assert_eq!(is_whole(&path), lost == 0, "{lost} bytes");
        }
        fs::write(&path, vec![b'x'; 5000]).unwrap();
        assert!(!is_whole(&path));
    }
}
