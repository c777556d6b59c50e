//! The command's environment.

use std::ffi::CString;

use crate::facts::environment::Filled;

/// Returns the inherited entries with the filled variables: a filled variable replaces an inherited entry of
/// the same name, or else is appended.
pub(crate) fn with<'a>(
    inherited: Vec<CString>,
    filled: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<CString> {
    let mut environment = inherited;
    for (variable, value) in filled {
        let Ok(entry) = CString::new(format!("{variable}={value}")) else { continue };
        environment.retain(|old| !is_of(old, variable));
        environment.push(entry);
    }
    environment
}

/// Returns the inherited entries without these variables; an entry with another value is not one of them.
pub(crate) fn without(mut inherited: Vec<CString>, filled: &[Filled]) -> Vec<CString> {
    let is = |entry: &CString, one: &Filled| value_of(entry, &one.variable) == Some(one.value.as_bytes());
    inherited.retain(|entry| !filled.iter().any(|one| is(entry, one)));
    inherited
}

fn is_of(entry: &CString, variable: &str) -> bool {
    value_of(entry, variable).is_some()
}

fn value_of<'a>(entry: &'a CString, variable: &str) -> Option<&'a [u8]> {
    entry.as_bytes().strip_prefix(variable.as_bytes())?.strip_prefix(b"=")
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
        let filled = Filled { variable: "A".to_owned(), value: "2".to_owned(), ..Filled::default() };
        assert_eq!(without(inherited, &[filled]), [entry(b"A=\xff"), entry(b"no-equals"), entry(b"AB=1")]);
    }
}
