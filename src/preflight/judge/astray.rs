//! Detects rails whose data leaves through an interface other than their own, because of a wrong route.
//! NCCL's data would leave there, too: the rails share one interface, although each of them passes.
//! This is only a warning, because the job runs.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};

use crate::facts::Reader;
use crate::preflight::judge::evidence::Evidence;
use crate::text::condensed_to;

/// The most rails that are named.
const NAMED: usize = 8;

/// In bytes: more than a list of a thousand interfaces takes.
const LONGEST: u64 = 1024 * 1024;

/// Returns how many bytes an interface of this network namespace has sent (`net/core/net-procfs.c`).
pub(in crate::preflight) fn sent_by(reader: &Reader, interface: &str) -> Option<u64> {
    let list = reader.bytes("/proc/net/dev", LONGEST)?;
    String::from_utf8_lossy(&list).lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        // The first eight counters are for received data.
        (name.trim() == interface).then(|| counts.split_whitespace().nth(8)?.parse().ok())?
    })
}

/// Returns whether this is an address of this network namespace. Data to such an address does not leave
/// through any interface.
pub(in crate::preflight) fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Returns a sentence about the rails whose data left through another interface, if there are any.
pub(in crate::preflight) fn warning(evidence: &Evidence) -> Option<String> {
    let mut rails: BTreeSet<(u32, usize)> = BTreeSet::new();
    for one in evidence.tries() {
        for rail in 0..one.rails() {
            let astray = (0..).zip(one.nodes).filter(|(end, _)| one.is_astray(*end, rail));
            rails.extend(astray.map(|(_, node)| (node, rail)));
        }
    }
    let name = |(node, rail): &(u32, usize)| {
        format!("{} {}", evidence.name(*node), evidence.rail_name(*node, *rail))
    };
    let names: Vec<String> = rails.iter().map(name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "data leaves through another interface than the rail's own, because of a wrong route (check ip route get ADDRESS from ADDRESS): {}",
            condensed_to(&names, NAMED)
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::preflight::judge::evidence::Member;
    use crate::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport, Seen};

    #[test]
    fn the_counter_is_that_of_the_interface() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/net")).unwrap();
        let list = "Inter-|   Receive  |  Transmit\n face |bytes packets\n  eth1: 1 2 3 4 5 6 7 8 900 10 0 0 0 0 0 0\n  eth10: 1 2 3 4 5 6 7 8 901 10 0 0 0 0 0 0\n";
        fs::write(root.path().join("proc/net/dev"), list).unwrap();
        let reader = Reader::new(root.path());
        let sent = |interface| sent_by(&reader, interface);
        assert_eq!([sent("eth1"), sent("eth10"), sent("eth0")], [Some(900), Some(901), None]);
    }

    #[test]
    fn the_rails_whose_data_goes_astray_are_named() {
        let member =
            |node| Member { name: format!("h{node}"), rails: vec!["eth1".into()], ..Member::default() };
        let mut evidence = Evidence::new((0..3).map(member).collect(), 2);
        for [node, partner] in [[0, 1], [1, 0], [1, 2], [2, 1]] {
            let well = RailReport::new(0, Ok(Measured { latency_us: 20.0, gbps: 10.0 }));
            let report = RailReport { seen: Seen { astray: node == 1, ..Seen::default() }, ..well };
            let outcome = PairOutcome::Rails(vec![report]);
            evidence.add(PairReport { round: 0, node, partner, seconds: 1.0, outcome });
        }
        assert!(warning(&evidence).unwrap().ends_with("ADDRESS): h1 eth1"), "{:?}", warning(&evidence));
        assert_eq!(warning(&Evidence::new(vec![Member::default(); 3], 2)), None);
    }
}
