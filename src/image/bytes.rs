//! Reads little-endian numbers and C strings from untrusted bytes.

/// In bytes: the longest path that Linux allows, with the NUL (`PATH_MAX`).
pub(super) const LONGEST_PATH: usize = 4096;

pub(super) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(array(bytes, at)?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(array(bytes, at)?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(array(bytes, at)?))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Returns the text up to the next NUL; `None` if no NUL is within reach or the text is not UTF-8.
pub(super) fn text_at(bytes: &[u8], at: usize) -> Option<&str> {
    text_within(bytes, at, LONGEST_PATH)
}

/// Does the same as [`text_at`] for a text of at most this many bytes.
pub(super) fn text_within(bytes: &[u8], at: usize, longest: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().take(longest.saturating_add(1)).position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}
