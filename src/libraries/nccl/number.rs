//! How NCCL reads numbers.

use super::version::{REFUSES_WORDS, Version};

/// Returns the number that a release reads from an integer variable (`ncclLoadParam`); `None` if it uses the
/// variable's default.
pub fn integer(text: &str, version: Version) -> Option<i64> {
    let unsigned =
        |text: &str| text.strip_prefix(['-', '+']).unwrap_or(text).starts_with(|c: char| c.is_ascii_digit());
    let has_digits = || unsigned(text.trim_start());
    let is_one = !text.is_empty() && (version < REFUSES_WORDS || has_digits());
    if is_one { strtoll(text) } else { None }
}

/// Behaves like strtoll(3) with base 0: accepts `0x` and `0` prefixes, ignores trailing text, and returns 0
/// for text that is not a number. Returns `None` on overflow.
pub fn strtoll(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (negative, text) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let hexadecimal = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()));
    let (radix, digits) = match hexadecimal {
        Some(rest) => (16, rest),
        None if text.starts_with('0') => (8, text),
        None => (10, text),
    };
    let mut value: i64 = 0;
    for digit in digits.chars().map_while(|c| c.to_digit(radix)) {
        let next = value
            .checked_mul(i64::from(radix))
            .and_then(|v| if negative { v.checked_sub(digit.into()) } else { v.checked_add(digit.into()) });
        match next {
            Some(next) => value = next,
            None => return None,
        }
    }
    Some(value)
}

/// Returns whether NCCL reads the number that a person would read: the text is not octal, has nothing after
/// the number, and does not overflow.
pub fn is_as_it_shows(text: &str) -> bool {
    let unsigned = text.trim_start_matches(['-', '+']);
    let is_hexadecimal = || {
        let digits = unsigned.strip_prefix("0x");
        digits.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit()))
    };
    strtoll(text).is_some_and(|number| {
        number.to_string() == text.trim_start().trim_start_matches('+')
            || is_hexadecimal()
            || unsigned.chars().all(|c| c == '0')
    })
}

/// Behaves like atoi(3), with which NCCL parses the ports in lists.
pub fn atoi(text: &str) -> i64 {
    let text = text.trim_start();
    let end = text
        .char_indices()
        .find(|(index, c)| !(c.is_ascii_digit() || (*index == 0 && matches!(c, '-' | '+'))))
        .map_or(text.len(), |(index, _)| index);
    text[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_c_library_reads_them() {
        for (text, value) in [
            ("22", 22),
            ("022", 18),
            ("0x16", 22),
            ("22s", 22),
            ("abc", 0),
            ("", 0),
            (" 7", 7),
            ("-1", -1),
            ("+3", 3),
            ("0x", 0),
            ("08", 0),
        ] {
            assert_eq!(strtoll(text), Some(value), "{text:?}");
        }
        assert_eq!(strtoll("99999999999999999999"), None);
        for (text, is_so) in [
            ("22", true),
            (" 7", true),
            ("+3", true),
            ("-1", true),
            ("0x16", true),
            ("00", true),
            ("022", false),
            ("22s", false),
            ("abc", false),
            ("0x", false),
            ("99999999999999999999", false),
        ] {
            assert_eq!(is_as_it_shows(text), is_so, "{text:?}");
        }
        for (text, value) in [("1", 1), ("2x", 2), ("", 0), ("-1", -1), ("x", 0), ("010", 10)] {
            assert_eq!(atoi(text), value, "{text:?}");
        }
    }
}
