//! Tables that replace signals on their way to the command, and exit codes on their way out.

use crate::sys::signals::{self, LARGEST};

/// Which signal the command gets for each signal that its init receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite([u8; Rewrite::SIZE]);

impl Rewrite {
    pub const SIZE: usize = LARGEST as usize + 1;

    /// Parses texts of the form `FROM:TO`, each part a name or a number; a TO of 0 drops the signal. The
    /// table is applied once: a TO is not looked up again as the FROM of another text.
    ///
    /// # Errors
    /// What is wrong with the first text that does not have this form.
    pub fn new(texts: &[impl AsRef<str>]) -> Result<Rewrite, String> {
        let mut rewrite = Rewrite::default();
        for text in texts {
            let text = text.as_ref();
            let expected = || {
                format!(
                    "{text:?} is not FROM:TO with two signals, such as TERM:INT, 15:2 or HUP:0 (0 drops it)"
                )
            };
            let (from, to) = text.split_once(':').ok_or_else(expected)?;
            let from = signals::parse(from).ok_or_else(expected)?;
            let to = if to.trim() == "0" { 0 } else { signals::parse(to).ok_or_else(expected)? };
            if !signals::reaches_init(from) {
                let name = signals::name(from);
                return Err(format!("{text:?}: {name} is never forwarded, so it cannot become another"));
            }
            if let (Some(place), Ok(to)) =
                (usize::try_from(from).ok().and_then(|f| rewrite.0.get_mut(f)), to.try_into())
            {
                *place = to;
            }
        }
        Ok(rewrite)
    }

    /// Returns the signal to forward; `None` to drop this signal.
    pub fn of(&self, signal: i32) -> Option<i32> {
        let place = usize::try_from(signal).ok().and_then(|signal| self.0.get(signal));
        place.map_or(Some(signal), |to| (*to != 0).then_some(i32::from(*to)))
    }

    pub fn table(&self) -> [u8; Rewrite::SIZE] {
        self.0
    }

    pub fn from_table(table: &[u8; Rewrite::SIZE]) -> Rewrite {
        Rewrite(*table)
    }
}

/// Forwards every signal unchanged.
impl Default for Rewrite {
    fn default() -> Rewrite {
        Rewrite(std::array::from_fn(|signal| u8::try_from(signal).unwrap_or_default()))
    }
}

/// Which exit code the container returns for each exit code of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remap([u8; Remap::SIZE]);

impl Remap {
    pub const SIZE: usize = 256;

    /// Parses texts of the form `N` or `N:M`, codes from 0 to 255; M is 0 if it is omitted.
    ///
    /// # Errors
    /// What is wrong with the first text that does not have this form.
    pub fn new(texts: &[impl AsRef<str>]) -> Result<Remap, String> {
        let mut remap = Remap::default();
        for text in texts {
            let text = text.as_ref();
            let (from, to) = text.split_once(':').unwrap_or((text, "0"));
            match (from.trim().parse::<u8>(), to.trim().parse::<u8>()) {
                (Ok(from), Ok(to)) => remap.0[usize::from(from)] = to,
                _ => {
                    return Err(format!(
                        "{text:?} is not N or N:M with exit codes from 0 to 255, such as 143 (becomes 0) or 143:1"
                    ));
                }
            }
        }
        Ok(remap)
    }

    pub fn of(&self, code: i32) -> i32 {
        let place = usize::try_from(code).ok().and_then(|code| self.0.get(code));
        place.map_or(code, |to| i32::from(*to))
    }

    pub fn table(&self) -> [u8; Remap::SIZE] {
        self.0
    }

    pub fn from_table(table: &[u8; Remap::SIZE]) -> Remap {
        Remap(*table)
    }
}

/// Passes every code on unchanged.
impl Default for Remap {
    fn default() -> Remap {
        Remap(std::array::from_fn(|code| u8::try_from(code).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_takes_names_and_numbers_and_one_step() {
        let rewrite =
            Rewrite::new(&["term:SIGINT", "2:15", "HUP:0", "USR1:usr2", "10:9", "RTMIN+1:64"]).unwrap();
        assert_eq!([15, 2, 1].map(|signal| rewrite.of(signal)), [Some(2), Some(15), None]);
        assert_eq!(rewrite.of(10), Some(9), "the later text wins");
        assert_eq!([35, 3, 64].map(|signal| rewrite.of(signal)), [Some(64), Some(3), Some(64)]);
        let all = Rewrite::default();
        assert!((1..=64).all(|signal| all.of(signal) == Some(signal)));
    }

    #[test]
    fn a_malformed_rewrite_is_refused() {
        for text in
            ["", "TERM", "TERM:", ":TERM", "TERM:INT:HUP", "65:1", "1:65", "0:1", "-1:2", "nope:1", "derp"]
        {
            assert!(Rewrite::new(&[text]).is_err(), "{text:?} was taken");
        }
        for text in ["KILL:TERM", "STOP:TERM", "CHLD:USR1"] {
            assert!(Rewrite::new(&[text]).unwrap_err().contains("never forwarded"), "{text:?}");
        }
        assert!(Rewrite::new(&["TERM:KILL", "INT:STOP"]).is_ok());
    }

    #[test]
    fn a_code_becomes_0_or_what_is_said() {
        let remap = Remap::new(&["143", "3:9", " 255 : 1 "]).unwrap();
        assert_eq!([143, 3, 255, 9, 0].map(|code| remap.of(code)), [0, 9, 1, 9, 0]);
        for text in ["", "256", "-1", "1:256", "a", "1:b", "1:2:3"] {
            assert!(Remap::new(&[text]).is_err(), "{text:?} was taken");
        }
    }
}
