//! Which known name a misspelled one probably means.

/// Returns the number of slips between two names (a letter that is missing, superfluous, wrong, or swapped with the
/// next one), if there are at most `most` of them.
pub(crate) fn slips(one: &str, other: &str, most: usize) -> Option<usize> {
    // Counting the slips takes time, and a start does it for each pair of a known name and an unknown one.
    let is_far = one.chars().count().abs_diff(other.chars().count()) > most;
    (!is_far).then(|| strsim::damerau_levenshtein(one, other)).filter(|slips| *slips <= most)
}

/// Returns the name with the fewest slips, if it has at most `most`; of several, the first one in the alphabet.
pub(crate) fn nearest<T: AsRef<str> + Ord>(
    names: impl IntoIterator<Item = T>,
    given: &str,
    most: usize,
) -> Option<T> {
    let near = names.into_iter().filter_map(|name| Some((slips(name.as_ref(), given, most)?, name)));
    near.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted_up_to_a_limit() {
        assert_eq!(slips("NCCL_IB_HCA", "NCCL_IB_HAC", 1), Some(1));
        assert_eq!(slips("NCCL_IB_HCA", "NCCL_IB_HCAS", 1), Some(1));
        assert_eq!(slips("NCCL_IB_HCA", "NCCL_IB_HCASS", 1), None);
        assert_eq!(slips("NCCL_IB_HCA", "NCCL_BI_HAC", 1), None);
        // A character counts once, however many bytes it has.
        assert_eq!(slips("prefix", "pr\u{1f600}fix", 1), Some(1));
    }

    #[test]
    fn the_nearest_name_is_the_first_of_those_with_the_fewest_slips() {
        assert_eq!(nearest(["watch", "match", "batch"], "latch", 1), Some("batch"));
        assert_eq!(nearest(["watched", "watch"], "watchd", 2), Some("watch"));
        assert_eq!(nearest(["watch"], "status", 3), None);
        assert_eq!(nearest([""; 0], "status", 3), None);
    }
}
