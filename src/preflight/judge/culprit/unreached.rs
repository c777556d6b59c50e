//! Node 0 that other nodes do not reach. If most of them did not join, it is rather its port or its address
//! than all of them.

use super::{Fault, Place, What};
use crate::preflight::judge::evidence::{Evidence, Gone};

/// Returns the fault, if no other node joined, or fewer than half of all.
pub(super) fn fault(evidence: &Evidence) -> Option<Fault> {
    let nodes = evidence.members().len();
    let mut within = None;
    let mut missing = 0;
    for (node, how) in evidence.gone() {
        if let Gone::NeverJoined(time) = how {
            // A node that was sent away has reached node 0.
            if evidence.explanation(*node).is_some() {
                return None;
            }
            within = Some(time.clone());
            missing += 1;
        }
    }
    let joined = nodes.saturating_sub(missing);
    let within = within.filter(|_| joined < 2 || joined * 2 < nodes)?;
    let what = What::Unreached { joined, within };
    Some(Fault { what, place: Place::Whole, why: String::new() })
}
