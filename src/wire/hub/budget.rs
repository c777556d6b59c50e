//! How much a hub stores of messages whose end has not arrived. Each may be long, and a node may send
//! most of one and then stop. Many of these must not fill the memory.

/// In bytes: what is stored for all nodes together, and for each of them. In all but the largest jobs,
/// a node's reports of all pairs are smaller than this, and most arrive as a whole.
const OF_ALL: usize = 4 * 1024 * 1024;
const OF_EACH: usize = 8 * 1024;

pub(super) struct BufferBudget {
    most: usize,
    held: usize,
}

impl BufferBudget {
    /// Returns the budget for a job of this many nodes.
    pub(super) fn of(nodes: usize) -> BufferBudget {
        BufferBudget { most: OF_ALL.saturating_add(nodes.saturating_mul(OF_EACH)), held: 0 }
    }

    #[cfg(test)]
    pub(super) fn of_bytes(most: usize) -> BufferBudget {
        BufferBudget { most, held: 0 }
    }

    /// Records that a connection now stores `after` bytes instead of `before`.
    pub(super) fn change(&mut self, before: usize, after: usize) {
        self.held = self.held.saturating_sub(before).saturating_add(after);
    }

    /// Returns whether the budget is exceeded, so that a connection must be closed.
    pub(super) fn is_too_small(&self) -> bool {
        self.held > self.most
    }
}
