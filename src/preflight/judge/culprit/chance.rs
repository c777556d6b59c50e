//! Whether there are more failures than chance explains. Pure.
//!
//! A fabric may lose some of its paths, for example if ECMP hashes flows onto a dead link. Then many
//! pairs fail here and there, and some node fails more often than others by chance. A node counts as
//! faulty only if chance hardly explains its failures.

/// The upper limit for the probability that chance explains the failures of a node that passes with no
/// other node, for any of the nodes.
const ALONE: f64 = 0.002;

/// The same limit for a node that passes with others: by the pairs that have failed, and by all of
/// their tries. Some dead paths may happen to be at one node, and then they are always the same ones,
/// so fewer pairs prove less.
pub(super) const BY_PAIRS: f64 = 0.0001;
pub(super) const BY_TRIES: f64 = 0.0001;

/// The nodes of one part of the job may have more of the bad paths than the others: up to this many
/// times as many.
const UNEVEN: f64 = 2.0;

/// More tries than this prove nothing more.
const MOST: usize = 12;

/// How often pairs fail if no faulty node is in them.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::preflight::judge) struct Background {
    pub failed: usize,
    pub tried: usize,
}

impl Background {
    pub(in crate::preflight::judge) fn add(&mut self, has_failed: bool) {
        self.failed += usize::from(has_failed);
        self.tried += 1;
    }

    pub(in crate::preflight::judge) fn remove(&mut self, has_failed: bool) {
        self.failed -= usize::from(has_failed);
        self.tried -= 1;
    }

    pub(in crate::preflight::judge) fn take(&mut self, other: Background) {
        self.failed -= other.failed;
        self.tried -= other.tried;
    }

    /// Returns the assumed share of failures. If there are few tries, it is above 0 even if all of them
    /// passed, because they do not show that no other one fails.
    fn share(self) -> f64 {
        ((UNEVEN * self.failed as f64 + 1.0) / (self.tried as f64 + 2.0)).min(1.0)
    }

    /// Returns whether chance explains these failures with a probability of at most `bound`: that any
    /// of `choices` nodes, or groups of nodes, fails with `failed` of `tried` others.
    pub(super) fn is_unlikely(self, failed: usize, tried: usize, choices: f64, bound: f64) -> bool {
        at_least(failed, tried, self.share()) * choices <= bound
    }

    /// Returns how many tries must fail, with none passing, until chance no longer explains that;
    /// `least` if nothing else fails.
    pub(super) fn needed(self, least: usize, nodes: usize) -> usize {
        if self.failed == 0 {
            return least;
        }
        let is_enough = |tries: &usize| self.is_unlikely(*tries, *tries, nodes as f64, ALONE);
        (least..MOST).find(is_enough).unwrap_or(MOST)
    }
}

/// Returns how well the best share of failures explains these pairs: the logarithm of their likelihood.
pub(in crate::preflight::judge) fn log_likelihood(of: Background) -> f64 {
    weighted_log(of.failed) + weighted_log(of.tried - of.failed) - weighted_log(of.tried)
}

pub(in crate::preflight::judge) fn weighted_log(count: usize) -> f64 {
    if count == 0 { 0.0 } else { count as f64 * (count as f64).ln() }
}

/// Returns the probability that at least `failed` of `tried` fail, if each of them fails with the
/// probability `share`.
fn at_least(failed: usize, tried: usize, share: f64) -> f64 {
    if failed == 0 || share >= 1.0 {
        return 1.0;
    }
    // The logarithm of the probability that exactly `count` fail, updated from one count to the next.
    let odds = (share / (1.0 - share)).ln();
    let mut log = tried as f64 * (1.0 - share).ln();
    let mut sum = 0.0;
    for count in 0..=tried {
        if count >= failed {
            sum += log.exp();
        }
        log += ((tried - count) as f64 / (count + 1) as f64).ln() + odds;
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_binomial_distribution() {
        for (failed, tried, share, wanted) in
            [(0, 5, 0.3, 1.0), (1, 1, 0.3, 0.3), (2, 4, 0.5, 0.6875), (5, 5, 0.1, 1e-5), (3, 5, 1.0, 1.0)]
        {
            let is = at_least(failed, tried, share);
            assert!((is - wanted).abs() < 1e-9, "{failed} of {tried} at {share}: {is}");
        }
    }

    #[test]
    fn more_tries_are_needed_where_others_fail_as_well() {
        let needed = |failed| Background { failed, tried: 100 }.needed(2, 16);
        assert_eq!([0, 1, 10, 20, 40].map(needed), [2, 3, 6, 10, 12]);
    }
}
