//! How much node 0 keeps of messages that have not come to their ends. Each may be long, and a node
//! may send most of one and stop; many of them must not fill the memory.

/// In bytes: what is kept for all nodes together, and for each of them. A node's reports of all pairs have
/// less than this in all but the largest jobs, and mostly come as a whole.
const OF_ALL: usize = 4 * 1024 * 1024;
const OF_EACH: usize = 8 * 1024;

pub(super) struct BufferBudget {
    most: usize,
    held: usize,
}

impl BufferBudget {
    /// For a job of so many nodes.
    pub(super) fn of(nodes: usize) -> BufferBudget {
        BufferBudget { most: OF_ALL.saturating_add(nodes.saturating_mul(OF_EACH)), held: 0 }
    }

    #[cfg(test)]
    pub(super) fn of_bytes(most: usize) -> BufferBudget {
        BufferBudget { most, held: 0 }
    }

    /// A connection keeps so many bytes, where it kept so many before.
    pub(super) fn change(&mut self, before: usize, after: usize) {
        self.held = self.held.saturating_sub(before).saturating_add(after);
    }

    /// Returns whether one of them has to go.
    pub(super) fn is_too_small(&self) -> bool {
        self.held > self.most
    }
}
