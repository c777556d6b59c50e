//! Lines of any file, read in bounded memory.

use std::io::{self, BufRead, ErrorKind};

/// In bytes; no report is longer.
pub(crate) const LONGEST: usize = 1 << 20;

/// In bytes. If a file has no end of line within this size, it is not a log, but for example
/// `/dev/zero` or a disk image.
const ENDLESS: usize = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadLine {
    Whole,
    /// The line is longer than [`LONGEST`], and the rest of it was skipped.
    TooLong,
    /// The line has no end, so the rest of the file cannot be read.
    Endless,
}

/// Reads the next line, without its end, into a buffer; `None` at the end of the file.
///
/// # Errors
/// The file's errors.
pub(crate) fn next(file: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Option<ReadLine>> {
    line.clear();
    let mut length = 0;
    loop {
        let chunk = match file.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            chunk => chunk?,
        };
        let at_end = chunk.is_empty();
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let room = LONGEST.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        length += part.len();
        let used = part.len() + usize::from(end.is_some());
        file.consume(used);
        if end.is_some() || at_end {
            let kind = if length > LONGEST { ReadLine::TooLong } else { ReadLine::Whole };
            return Ok((end.is_some() || length > 0).then_some(kind));
        }
        if length > ENDLESS {
            return Ok(Some(ReadLine::Endless));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn lines_are_whole_with_or_without_an_end() {
        let mut file = BufReader::with_capacity(3, &b"first\n\nlast"[..]);
        let mut line = Vec::new();
        for wanted in ["first", "", "last"] {
            assert_eq!(next(&mut file, &mut line).unwrap(), Some(ReadLine::Whole));
            assert_eq!(line, wanted.as_bytes());
        }
        assert_eq!(next(&mut file, &mut line).unwrap(), None);
    }

    #[test]
    fn what_is_too_long_is_passed_over_and_the_next_line_is_read() {
        let text = format!("{}\n{}\nnext", "x".repeat(LONGEST), "y".repeat(LONGEST + 1));
        let mut file = BufReader::new(text.as_bytes());
        let mut line = Vec::new();
        let mut read = || (next(&mut file, &mut line).unwrap(), line.len());
        assert_eq!(read(), (Some(ReadLine::Whole), LONGEST));
        assert_eq!(read(), (Some(ReadLine::TooLong), LONGEST));
        assert_eq!(read(), (Some(ReadLine::Whole), 4));
        assert_eq!(read(), (None, 0));
    }

    #[test]
    fn what_never_ends_is_given_up() {
        let mut line = Vec::new();
        let mut file = BufReader::new(io::repeat(0));
        assert_eq!(next(&mut file, &mut line).unwrap(), Some(ReadLine::Endless));
        assert_eq!(line.len(), LONGEST);
    }
}
