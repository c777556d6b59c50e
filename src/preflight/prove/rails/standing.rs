//! The results of a node's rail so far. A rail that is known to be dead is not tested with every other
//! node, because each test waits until the node's patience is over.

use serde::{Deserialize, Serialize};

use crate::preflight::prove::pair::PairOutcome;

/// How many nodes a rail has passed with, and how many it has failed with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub passed: u16,
    pub failed: u16,
}

/// A rail that has failed this many times and never passed is not tested with a rail that has passed.
const WITH_WELL: u16 = 2;

/// After this many failures, such a rail is not tested with any other rail. Until then, nodes that are
/// behind the same one of several switches find each other.
const WITH_ANY: u16 = 3;

impl Standing {
    fn is_dead(self, other: Standing) -> bool {
        self.passed == 0 && (self.failed >= WITH_ANY || self.failed >= WITH_WELL && other.passed > 0)
    }
}

/// Returns whether a test of these two rails with each other would show nothing new.
pub(super) fn is_pointless(mine: Standing, theirs: Standing) -> bool {
    mine.is_dead(theirs) || theirs.is_dead(mine)
}

/// Adds the result of a pair to what is known about this node's rails.
pub(crate) fn add(standings: &mut [Standing], outcome: &PairOutcome) {
    let PairOutcome::Rails(reports) = outcome else { return };
    for report in reports {
        if let Some(of) = standings.get_mut(usize::from(report.rail)) {
            let count = if report.result.is_ok() { &mut of.passed } else { &mut of.failed };
            *count = count.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::prove::pair::{Measured, RailReport};

    #[test]
    fn a_rail_that_never_passes_is_left_alone_after_a_few_tries() {
        let of = |passed, failed| Standing { passed, failed };
        let both = |a, b| {
            assert_eq!(is_pointless(a, b), is_pointless(b, a));
            is_pointless(a, b)
        };
        assert!(!both(of(0, 1), of(5, 0)));
        assert!(both(of(0, 2), of(1, 0)), "with two nodes, and the third one is well");
        assert!(!both(of(0, 2), of(0, 2)), "the two may be behind one switch");
        assert!(both(of(0, 3), of(0, 0)));
        assert!(!both(of(1, 9), of(1, 9)), "it has passed once");
    }

    #[test]
    fn what_comes_of_a_pair_counts_for_each_of_its_rails() {
        let mut all = [Standing::default(); 2];
        let well = Ok(Measured { latency_us: 2.0, gbps: 390.0 });
        let reports = [(0, well.clone()), (1, Err("x".to_owned())), (9, well)];
        add(
            &mut all,
            &PairOutcome::Rails(reports.map(|(rail, result)| RailReport::new(rail, result)).into()),
        );
        add(&mut all, &PairOutcome::Failed(crate::preflight::prove::pair::PairFailure::Silent));
        assert_eq!(all, [Standing { passed: 1, failed: 0 }, Standing { passed: 0, failed: 1 }]);
    }
}
