//! The variables that NCCL reads, by release.

use std::cmp::Ordering;
use std::sync::LazyLock;

use super::version::Version;
use crate::nearest;

const TABLE: &str = include_str!("variables.txt");

/// An NCCL variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NcclVariable {
    pub name: &'static str,
    /// The first release that reads it; `None` for variables of 2.4 and earlier.
    pub since: Option<Version>,
    /// The last release that reads it, if a later one dropped it.
    pub until: Option<Version>,
}

impl NcclVariable {
    pub(crate) fn is_known_to(&self, version: Version) -> bool {
        self.since.is_none_or(|since| version >= since) && self.until.is_none_or(|until| version <= until)
    }
}

/// The table is parsed only once, because a misspelled name is compared with each entry and the user may have
/// set thousands of variables.
static ALL: LazyLock<Vec<NcclVariable>> = LazyLock::new(|| TABLE.lines().filter_map(variable).collect());

/// Parses a line of the table; returns `None` for a comment.
fn variable(line: &'static str) -> Option<NcclVariable> {
    let mut fields = line.split(' ');
    let name = fields.next().filter(|name| !name.starts_with('#'))?;
    let mut version = || fields.next().and_then(Version::parse);
    Some(NcclVariable { name, since: version(), until: version() })
}

/// Returns every variable, sorted by name.
pub(crate) fn all() -> impl Iterator<Item = NcclVariable> {
    ALL.iter().copied()
}

/// Returns the variable with this name. Each start looks up several names, and parsing the whole table takes
/// as long as the rest of the decision, so this bisects the table's sorted lines. It does not use the crate
/// memchr, which asks the processor for its features: in a virtual machine, that takes longer than this whole
/// lookup.
pub(crate) fn find(name: &str) -> Option<NcclVariable> {
    let mut rest = TABLE;
    while !rest.is_empty() {
        let middle = rest.len() / 2;
        let start = rest.get(..middle)?.rfind('\n').map_or(0, |newline| newline + 1);
        let end = rest.get(middle..)?.find('\n').map_or(rest.len(), |newline| middle + newline);
        let line = rest.get(start..end)?;
        let found = line.split(' ').next().unwrap_or(line);
        rest = match name.cmp(found) {
            Ordering::Equal => return variable(line),
            Ordering::Less => rest.get(..start)?,
            Ordering::Greater => rest.get(end + 1..)?,
        };
    }
    None
}

/// Returns the known name that a misspelled one probably means.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    nearest_of(all().map(|variable| variable.name), name)
}

/// Does the same for these names.
pub(crate) fn nearest_of<'n>(names: impl Iterator<Item = &'n str>, name: &str) -> Option<&'n str> {
    // Allows one typo in a short name, two in a longer one.
    let most = if name.len() < 14 { 1 } else { 2 };
    nearest::nearest(names, name, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::secret::is_secret;

    #[test]
    fn the_table_can_be_read_and_is_sorted() {
        let names: Vec<&str> = all().map(|variable| variable.name).collect();
        assert!(names.len() > 300 && names.is_sorted());
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(names.len(), lines);
        for variable in all() {
            assert!(variable.name.starts_with("NCCL_"));
            assert_eq!(find(variable.name), Some(variable));
            assert!(
                variable.since.is_none() || variable.until.is_none_or(|last| Some(last) >= variable.since)
            );
        }
    }

    #[test]
    fn each_release_knows_its_own_variables() {
        let known = |name, version| find(name).unwrap().is_known_to(version);
        assert!(!known("NCCL_IB_ADDR_RANGE", Version::new(2, 20, 5)));
        assert!(known("NCCL_IB_ADDR_RANGE", Version::new(2, 21, 5)));
        assert!(known("NCCL_IB_HCA", Version::new(2, 18, 3)));
        assert!(!known("NCCL_RINGS", Version::new(2, 18, 3)));
        for unknown in ["NCCL_IB_HCAS", "NCCL_", "#", "", "A", "ZZZ", "NCCL_IB_HCA "] {
            assert_eq!(find(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn a_slip_is_recognized() {
        assert_eq!(nearest("NCCL_IB_HCAS"), Some("NCCL_IB_HCA"));
        assert_eq!(nearest("NCCL_SOCKET_IFNMAE"), Some("NCCL_SOCKET_IFNAME"));
        assert_eq!(nearest("NCCL_IB_GID_INDX"), Some("NCCL_IB_GID_INDEX"));
        assert_eq!(nearest("NCCL_MY_OWN_PLUGIN_KNOB"), None);
    }

    #[test]
    fn none_is_taken_for_a_secret() {
        let secret: Vec<&str> = all().map(|variable| variable.name).filter(|name| is_secret(name)).collect();
        assert!(secret.is_empty(), "{secret:?}");
    }
}
