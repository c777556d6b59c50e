//! The command's environment.

use std::ffi::CString;

/// The inherited entries as they are, with the filled variables in place of
/// inherited ones of the same name, and the others after them.
pub fn with<'a>(inherited: Vec<CString>, filled: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<CString> {
    let mut environment = inherited;
    for (variable, value) in filled {
        let Ok(entry) = CString::new(format!("{variable}={value}")) else { continue };
        let is_same = |old: &CString| {
            old.as_bytes().strip_prefix(variable.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        };
        environment.retain(|old| !is_same(old));
        environment.push(entry);
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_entry_stays_byte_for_byte() {
        let entry = |bytes: &[u8]| CString::new(bytes).unwrap();
        let inherited = vec![entry(b"A=\xff"), entry(b"no-equals"), entry(b"A=2"), entry(b"AB=1")];
        let environment = with(inherited.clone(), [("N", "1"), ("AB", "x")].into_iter());
        let mut wanted = inherited[..3].to_vec();
        wanted.extend([entry(b"N=1"), entry(b"AB=x")]);
        assert_eq!(environment, wanted);
    }
}
