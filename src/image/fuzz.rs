//! The functions that the fuzzers call; see [`crate::fuzz`].

use std::cell::RefCell;
use std::fs::File;
use std::io::{Seek, Write};

use nix::sys::memfd::MFdFlags;

use super::elf::Elf;
use super::{cache, kernel_abi, matters, packages, scan, wheel};
use crate::sys::memfd;

thread_local! {
    static FILE: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Reads a library or a program.
pub(crate) fn elf(data: &[u8]) {
    const MOST: u64 = 1 << 20;
    FILE.with_borrow_mut(|kept| {
        let file = kept
            .get_or_insert_with(|| File::from(memfd::create(c"fuzz", MFdFlags::empty()).expect("memory")));
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(data)).expect("memory");
        let Ok(elf) = Elf::open(file) else { return };
        let texts = elf.texts(MOST);
        assert!(texts.start <= texts.end && texts.end - texts.start <= MOST);
        elf.dynamic();
        elf.interpreter();
        elf.versions_needed();
        elf.versions_defined();
        kernel_abi::in_library(&elf, "mlx5");
        for version in [scan::nccl_version, scan::rccl_version, scan::ucx_version, scan::nvshmem_version] {
            if let Some(version) = version(file, &elf, MOST) {
                assert!(version.split('.').all(|part| part.parse::<u64>().is_ok()), "{version}");
            }
        }
    });
}

pub(crate) fn ld_so_cache(data: &[u8]) {
    let matters = |name: &str| matters(name, Some(|_| true));
    let Some(entries) = cache::parse(data, &matters) else { return };
    assert!(entries.len() <= cache::KEPT);
    for (name, path) in entries {
        assert!(matters(&name) && path.is_absolute(), "{name}: {}", path.display());
    }
}

/// Reads the names in a package directory, and what pip records about each.
pub(crate) fn packages(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for line in text.lines() {
        if let Some((name, version)) = packages::noted(line) {
            assert!(packages::is_note(line, |_| true), "{line}");
            assert!(version.starts_with(|c: char| c.is_ascii_digit()) && !name.contains('_'), "{line}");
        }
    }
    for (file, size) in wheel::files(&text) {
        packages::repaired(file);
        assert!(size.is_empty() || size.ends_with(|c: char| c.is_ascii_digit()), "{size}");
    }
}
