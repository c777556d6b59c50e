//! What UCX makes of `UCX_IB_GID_INDEX`: `auto` and `inf` in any case, else the number at the beginning, as
//! scanf(3) reads it (`ucs_config_sscanf_ulunits` in `src/ucs/config/parser.c`, UCX 1.10 to 1.22). So `0x3`
//! is slot 0, and `3,4` slot 3.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    Auto,
    /// A slot; a number that no table has stands for all that are larger, and for those below 0.
    Slot(u32),
}

/// `None` where UCX ends with an error.
pub fn read(value: &str) -> Option<Index> {
    if value.eq_ignore_ascii_case("auto") {
        return Some(Index::Auto);
    }
    if value.eq_ignore_ascii_case("inf") {
        return Some(Index::Slot(u32::MAX));
    }
    let value = value.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let unsigned = value.strip_prefix(['-', '+']).unwrap_or(value);
    let digits = unsigned.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
    let number = digits.parse().unwrap_or(u32::MAX);
    Some(Index::Slot(if value.starts_with('-') && number > 0 { u32::MAX } else { number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_at_the_beginning_counts() {
        for (value, index) in [
            ("auto", Some(Index::Auto)),
            ("AUTO", Some(Index::Auto)),
            ("3", Some(Index::Slot(3))),
            (" +3 ", Some(Index::Slot(3))),
            ("3,4", Some(Index::Slot(3))),
            ("0x3", Some(Index::Slot(0))),
            ("1e3", Some(Index::Slot(1))),
            ("-0", Some(Index::Slot(0))),
            ("-1", Some(Index::Slot(u32::MAX))),
            ("Inf", Some(Index::Slot(u32::MAX))),
            ("99999999999999999999", Some(Index::Slot(u32::MAX))),
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
