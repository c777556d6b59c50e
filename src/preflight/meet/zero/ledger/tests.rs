use super::*;

fn ledger(nodes: u32) -> Ledger {
    let mut ledger = Ledger::default();
    (0..nodes).for_each(|node| ledger.join(node));
    ledger
}

fn debts(ledger: &Ledger) -> Vec<(u32, Debt)> {
    ledger.debts().collect()
}

fn debt(owed: usize, of: usize, is_late: bool) -> Debt {
    Debt { owed, of, is_late }
}

#[test]
fn a_pair_is_over_when_both_have_reported_it() {
    let mut ledger = ledger(3);
    let orders = ledger.order([(0, 0, 1), (1, 1, 2)]);
    assert_eq!(orders, BTreeMap::from([(0, vec![(0, 1)]), (1, vec![(0, 0), (1, 2)]), (2, vec![(1, 1)])]));
    assert_eq!((ledger.busy(), ledger.open()), (3, 2));
    assert!(ledger.settle(0, (0, 1)) && !ledger.settle(0, (0, 1)) && !ledger.settle(2, (0, 0)));
    assert_eq!((ledger.busy(), ledger.open()), (2, 2));
    assert!(ledger.settle(1, (0, 0)) && ledger.settle(1, (1, 2)));
    assert_eq!((ledger.busy(), ledger.open()), (1, 1));
    assert_eq!(ledger.waits_for().collect::<Vec<_>>(), [(1, 2)]);
    assert!(ledger.settle(2, (1, 1)));
    assert!(!ledger.is_waiting() && ledger.open() == 0 && debts(&ledger).is_empty());
}

#[test]
fn node_0_does_not_wait_for_a_node_whose_partners_have_gone() {
    let mut ledger = ledger(4);
    ledger.order([(0, 0, 1), (0, 2, 3)]);
    assert!(ledger.settle(1, (0, 0)));
    assert_eq!(ledger.leave(1), BTreeSet::from([0]), "only its partner has to know");
    assert_eq!((ledger.busy(), ledger.open()), (2, 1));
    assert!(ledger.settle(0, (0, 1)), "what comes of it is still heard");
    assert_eq!(ledger.leave(2), BTreeSet::from([3]));
    assert!(!ledger.is_waiting() && ledger.open() == 0);
    // Orders with nodes that have disconnected assign nothing, and node 0 waits for no node.
    assert_eq!(ledger.order([(1, 0, 1), (1, 2, 3)]), BTreeMap::new());
    assert!(!ledger.is_waiting());
    assert_eq!(ledger.order([(2, 0, 1), (2, 0, 3)]).into_keys().collect::<Vec<u32>>(), [0, 3]);
}

#[test]
fn a_node_that_does_not_report_in_time_is_late_and_gets_no_more_to_do() {
    let mut ledger = ledger(4);
    ledger.order([(0, 0, 1), (0, 2, 3), (1, 0, 2), (1, 1, 3)]);
    for (node, half) in [(0, (0, 1)), (1, (0, 0)), (3, (0, 2)), (0, (1, 2)), (1, (1, 3))] {
        assert!(ledger.settle(node, half));
    }
    // The first round is over, but the second may still be in progress.
    ledger.close(1);
    assert!(!ledger.is_waiting() && ledger.open() == 0);
    assert_eq!(debts(&ledger), [(2, debt(2, 2, true)), (3, debt(1, 2, false))]);
    let orders = ledger.order([(2, 0, 1), (2, 2, 3), (3, 1, 2), (3, 0, 3)]);
    assert_eq!(orders.into_keys().collect::<Vec<u32>>(), [0, 1]);
    // A node that does report later is free again.
    assert!(ledger.settle(2, (0, 3)) && ledger.settle(2, (1, 0)) && ledger.settle(3, (1, 1)));
    assert!(ledger.settle(0, (2, 1)) && ledger.settle(1, (2, 0)));
    assert!(debts(&ledger).is_empty());
    assert_eq!(ledger.order([(4, 2, 3)]).len(), 2);
}

#[test]
fn a_node_whose_late_partner_leaves_has_to_know() {
    let mut ledger = ledger(2);
    ledger.order([(0, 0, 1)]);
    ledger.close(1);
    assert_eq!(ledger.leave(1), BTreeSet::from([0]));
    assert!(debts(&ledger).is_empty() && ledger.settle(0, (0, 1)));
}
