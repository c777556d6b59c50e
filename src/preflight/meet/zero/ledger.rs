//! Which pairs node 0 has ordered, and which of them the nodes still owe. Pure: there is no connection
//! and no clock.
//!
//! Whether node 0 waits for a node is computed from what that node owes, and is not stored in a flag. A
//! node that has no pair, or whose peers have all disconnected, owes nothing, so node 0 cannot wait for
//! it.

use std::collections::{BTreeMap, BTreeSet};

use crate::preflight::judge::evidence::Debt;

/// A pair as one of its nodes sees it: the round, and the other node.
pub(super) type Half = (u16, u32);

/// A pair of a round: the round, and the two nodes.
pub(super) type Pair = (u16, u32, u32);

#[derive(Debug, Default, Clone)]
pub(super) struct Ledger {
    members: BTreeMap<u32, Account>,
    /// How many members owe a pair of the last order.
    busy: usize,
    /// How many pairs of the last order are still owed by at least one of their two members.
    open: usize,
}

#[derive(Debug, Default, Clone)]
struct Account {
    ordered: Vec<Half>,
    /// Pairs of the last order that the node has not reported.
    owed: BTreeSet<Half>,
    /// Pairs of closed orders. Their reports may still arrive, but node 0 does not wait for them.
    overdue: BTreeSet<Half>,
    /// Pairs that the node has not reported, with nodes that have disconnected. Node 0 does not wait
    /// for these, either.
    excused: BTreeSet<Half>,
    /// Whether the time of one of the overdue pairs ran out.
    is_late: bool,
}

impl Account {
    fn owes(&self, half: Half) -> bool {
        self.owed.contains(&half) || self.overdue.contains(&half)
    }

    fn is_free(&self) -> bool {
        self.owed.is_empty() && self.overdue.is_empty()
    }
}

impl Ledger {
    /// Makes a node a member.
    pub(super) fn join(&mut self, node: u32) {
        self.members.entry(node).or_default();
    }

    /// Removes a member. Returns the members that owe a pair with it, because they must be told.
    pub(super) fn leave(&mut self, node: u32) -> BTreeSet<u32> {
        let mut partners = BTreeSet::new();
        let Some(gone) = self.members.remove(&node) else { return partners };
        self.busy -= usize::from(!gone.owed.is_empty());
        for (round, with) in gone.ordered {
            // If the peer disconnected earlier, that closed the pair.
            let Some(partner) = self.members.get_mut(&with) else { continue };
            let half = (round, node);
            let was_open = gone.owed.contains(&(round, with)) || partner.owed.contains(&half);
            if partner.owes(half) {
                let was_busy = !partner.owed.is_empty();
                partner.owed.remove(&half);
                partner.overdue.remove(&half);
                partner.excused.insert(half);
                self.busy -= usize::from(was_busy && partner.owed.is_empty());
                partners.insert(with);
            }
            self.open -= usize::from(was_open);
        }
        partners
    }

    /// Orders pairs, and returns for each node what it has to test, in the order of the pairs. Skips
    /// pairs with a node that is not a member or that still owes a pair; so no node gets an empty
    /// order.
    pub(super) fn order(&mut self, pairs: impl IntoIterator<Item = Pair>) -> BTreeMap<u32, Vec<Half>> {
        self.close(0);
        let free: BTreeSet<u32> =
            self.members.iter().filter(|(_, account)| account.is_free()).map(|(node, _)| *node).collect();
        let mut orders: BTreeMap<u32, Vec<Half>> = BTreeMap::new();
        for (round, low, high) in pairs {
            let is_twice = self.members.get(&low).is_some_and(|account| account.owes((round, high)));
            if low == high || is_twice || !free.contains(&low) || !free.contains(&high) {
                continue;
            }
            self.open += 1;
            for (node, with) in [(low, high), (high, low)] {
                orders.entry(node).or_default().push((round, with));
                if let Some(account) = self.members.get_mut(&node) {
                    self.busy += usize::from(account.owed.is_empty());
                    account.ordered.push((round, with));
                    account.owed.insert((round, with));
                }
            }
        }
        orders
    }

    /// Stops waiting for the last order. A node that owes a pair of a round before `due` is late,
    /// because each node ends its pairs within their time.
    pub(super) fn close(&mut self, due: u16) {
        for account in self.members.values_mut() {
            account.is_late |= account.owed.first().is_some_and(|(round, _)| *round < due);
            account.overdue.append(&mut account.owed);
        }
        (self.busy, self.open) = (0, 0);
    }

    /// Records that a node has reported a pair. Returns whether the node owed that pair.
    pub(super) fn settle(&mut self, node: u32, half: Half) -> bool {
        let (round, with) = half;
        let partner = self.members.get(&with);
        let is_owed_by_partner = partner.is_some_and(|partner| partner.owed.contains(&(round, node)));
        let Some(account) = self.members.get_mut(&node) else { return false };
        if account.owed.remove(&half) {
            self.busy -= usize::from(account.owed.is_empty());
            self.open -= usize::from(!is_owed_by_partner);
            return true;
        }
        let is_owed = account.overdue.remove(&half) || account.excused.remove(&half);
        account.is_late &= !account.overdue.is_empty();
        is_owed
    }

    /// Returns whether a member owes a pair of the last order with another member.
    pub(super) fn is_waiting(&self) -> bool {
        self.busy > 0
    }

    /// Returns how many members node 0 waits for.
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// Returns the nodes that node 0 waits for, each with the first round that it owes.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = Half> {
        self.members.iter().filter_map(|(node, account)| Some((account.owed.first()?.0, *node)))
    }

    /// Returns how many pairs of the last order are not over.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Returns everything that is owed from the last order.
    #[cfg(test)]
    pub(super) fn owed(&self) -> impl Iterator<Item = (u32, Half)> {
        self.members.iter().flat_map(|(node, account)| account.owed.iter().map(|half| (*node, *half)))
    }

    /// Returns the debt of each member that owes something.
    pub(super) fn debts(&self) -> impl Iterator<Item = (u32, Debt)> {
        self.members.iter().filter(|(_, account)| !account.is_free()).map(|(node, account)| {
            let owed = account.owed.len() + account.overdue.len();
            (*node, Debt { owed, of: account.ordered.len(), is_late: account.is_late })
        })
    }
}

#[cfg(test)]
mod tests;
