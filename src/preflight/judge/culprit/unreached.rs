//! A node 0 that other nodes do not reach. If most of them did not join, the cause is more likely node
//! 0's port or address than all of these nodes.

use super::{Fault, Place, What};
use crate::preflight::judge::evidence::{Evidence, Gone};

/// Returns the fault if no other node joined, or if fewer than half of all nodes did.
pub(super) fn fault(evidence: &Evidence) -> Option<Fault> {
    let nodes = evidence.members().len();
    let mut within = None;
    let mut missing = 0;
    for (node, how) in evidence.gone() {
        if let Gone::NeverJoined(time) = how {
            // A node that was rejected did reach node 0.
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
