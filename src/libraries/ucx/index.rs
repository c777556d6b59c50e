//! How UCX reads `UCX_IB_GID_INDEX`: `auto` and `inf` in any case, else the number at the start, as scanf(3)
//! reads it (`ucs_config_sscanf_ulunits` in `src/ucs/config/parser.c`, UCX 1.10 to 1.22). So `0x3` means
//! index 0, and `3,4` means index 3.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GidIndex {
    Auto,
    /// A GID index. A number that no table has stands for all larger numbers and for negative ones.
    Slot(u32),
}

/// Returns the index in the value; `None` if UCX fails.
pub(super) fn read(value: &str) -> Option<GidIndex> {
    if value.eq_ignore_ascii_case("auto") {
        return Some(GidIndex::Auto);
    }
    if value.eq_ignore_ascii_case("inf") {
        return Some(GidIndex::Slot(u32::MAX));
    }
    let value = value.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let unsigned = value.strip_prefix(['-', '+']).unwrap_or(value);
    let digits = unsigned.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
    let number = digits.parse().unwrap_or(u32::MAX);
    Some(GidIndex::Slot(if value.starts_with('-') && number > 0 { u32::MAX } else { number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_at_the_beginning_counts() {
        for (value, index) in [
            ("auto", Some(GidIndex::Auto)),
            ("AUTO", Some(GidIndex::Auto)),
            ("3", Some(GidIndex::Slot(3))),
            (" +3 ", Some(GidIndex::Slot(3))),
            ("3,4", Some(GidIndex::Slot(3))),
            ("0x3", Some(GidIndex::Slot(0))),
            ("1e3", Some(GidIndex::Slot(1))),
            ("-0", Some(GidIndex::Slot(0))),
            ("-1", Some(GidIndex::Slot(u32::MAX))),
            ("Inf", Some(GidIndex::Slot(u32::MAX))),
            ("99999999999999999999", Some(GidIndex::Slot(u32::MAX))),
            ("", None),
            (" ", None),
            ("- 1", None),
            ("abc", None),
            ("automatic", None),
        ] {
            assert_eq!(read(value), index, "{value:?}");
        }
    }
}
