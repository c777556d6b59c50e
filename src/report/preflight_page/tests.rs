use std::time::{Duration, SystemTime};

use super::*;
use crate::preflight::judge::culprit;
use crate::preflight::judge::evidence::{Gone, Member};
use crate::preflight::judge::outliers;
use crate::preflight::judge::verdict::{Inputs, judge};
use crate::preflight::meet::schedule::{Extent, Schedule};
use crate::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};

/// Returns a job with these names. `of` returns a pair's result on a rail.
fn job(
    nodes: u32,
    rails: usize,
    extent: Extent,
    name: &dyn Fn(u32) -> String,
    of: &dyn Fn(u32, u32, usize) -> Result<Measured, String>,
) -> Evidence {
    let schedule = Schedule { nodes, extent };
    let member = |node| Member {
        name: name(node),
        rails: (0..rails).map(|rail| format!("mlx5_{rail}")).collect(),
        ..Member::default()
    };
    let mut evidence = Evidence::new((0..nodes).map(member).collect(), schedule.rounds() as u16);
    for round in 0..schedule.rounds() {
        for (a, b) in schedule.pairs(round) {
            for (node, partner) in [(a, b), (b, a)] {
                let rails = (0..rails).map(|rail| RailReport::new(rail as u16, of(node, partner, rail)));
                let outcome = PairOutcome::Rails(rails.collect());
                evidence.add(PairReport { round: round as u16, node, partner, seconds: 1.0, outcome });
            }
        }
    }
    evidence
}

fn page(evidence: &Evidence) -> String {
    let inputs = Inputs { seconds: 14.0, transport: "verbs".into(), ..Inputs::default() };
    let mut page = Vec::new();
    write(&mut page, &judge(evidence, &inputs)).unwrap();
    String::from_utf8(page).unwrap()
}

const USUAL: Measured = Measured { latency_us: 2.4, gbps: 390.0 };

fn gpu(node: u32) -> String {
    format!("gpu-{node:04}")
}

#[test]
fn names_of_others_are_text_and_never_code() {
    let evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>'\"&";
    let evidence = job(4, 1, Extent::Doubling, &|_| evil.to_owned(), &|node, partner, _| {
        if [node, partner].contains(&2) { Err(evil.to_owned()) } else { Ok(USUAL) }
    });
    let page = page(&evidence);
    assert!(!page.contains("<img") && !page.contains("alert(1)</script>"), "{page}");
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(page.contains("&lt;/script&gt;"));
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["names"][0], evil);
}

#[test]
fn nothing_comes_from_elsewhere() {
    let page = page(&job(4, 2, Extent::Doubling, &gpu, &|_, _, _| Ok(USUAL)));
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="), "{page}");
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_page_stays_some_megabytes_at_most() {
    let evidence = job(256, 4, Extent::Doubling, &gpu, &|_, _, _| Ok(USUAL));
    assert!(!PageData::new(&judge(&evidence, &Inputs::default()), MOST_CELLS).full);
    let page = page(&evidence);
    let cells = 256 / 2 * 8 * 4;
    // In base64: four bytes for each cell, and six for its pair.
    assert!(page.len() < 20_000 + cells * 6 + cells / 4 * 8 + 256 * 16, "{}", page.len());
    assert!(!page.contains("too many pairs"));
}

#[test]
fn of_too_many_pairs_the_worst_rail_is_shown_and_then_only_what_is_not_well() {
    let evidence = job(16, 4, Extent::Full, &gpu, &|node, partner, rail| {
        if [node, partner].contains(&3) && rail == 2 { Err("the port is DOWN".to_owned()) } else { Ok(USUAL) }
    });
    let verdict = judge(&evidence, &Inputs::default());
    assert!(PageData::new(&verdict, 480).full);
    let figures = |most| PageData::new(&verdict, most).figures.len();
    // 120 pairs with 4 rails, 4 bytes each.
    assert_eq!(figures(480), 120 * 4 * 4 / 3 * 4);
    assert_eq!(figures(479), 120 * 4 / 3 * 4);
    let least = PageData::new(&verdict, 100);
    assert_eq!(least.rails, ["the worst rail"]);
    assert_eq!(least.pairs.len(), 15 * 6 / 3 * 4);
    assert_eq!(least.marked, [(3, -1)]);
    assert_eq!(worst([[10, 1], [FAILED; 2], [UNTRIED; 2]].into_iter()), Some([FAILED; 2]));
}

#[test]
fn base64_is_that_of_the_rfc() {
    assert_eq!(base64(&[]), "");
    assert_eq!(base64(&[0x6f66]), "Zm8=");
    assert_eq!(base64(&[0x6f66, 0x626f]), "Zm9vYg==");
    assert_eq!(base64(&[0x6f66, 0x626f, 0x7261]), "Zm9vYmFy");
}

#[test]
fn a_job_without_any_tested_pair_has_a_page() {
    let mut evidence = Evidence::new(vec![Member::default(); 3], 2);
    evidence.lose(1, Gone::NeverJoined("10m".into()));
    let page = page(&evidence);
    assert!(page.contains("node 1 did not join within 10m") && !page.contains("<canvas"), "{page}");
}

#[test]
fn the_page_names_its_job_and_time_and_folds_warnings_after_ten() {
    let evidence = job(4, 1, Extent::Doubling, &gpu, &|_, _, _| Ok(USUAL));
    let warnings: Vec<String> = (1..=13).map(|number| format!("warning {number}.")).collect();
    let page = |count: usize| {
        let inputs = Inputs {
            warnings: warnings[..count].into(),
            job: Some("77.<2>".into()),
            at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000)),
            ..Inputs::default()
        };
        let mut page = Vec::new();
        write(&mut page, &judge(&evidence, &inputs)).unwrap();
        String::from_utf8(page).unwrap()
    };
    let all = page(13);
    assert!(all.contains("<p class=\"soft\">job 77.&lt;2&gt; · 2026-11-18T11:06:40Z · rdma-init "), "{all}");
    let [open, folded] = [("warning 10.", "<details>"), ("<summary>3 more</summary>", "warning 11.")];
    for (first, second) in [open, folded] {
        assert!(all.find(first).unwrap() < all.find(second).unwrap(), "{all}");
    }
    assert!(!page(10).contains("<details>"));
}

#[test]
fn a_node_that_is_slow_is_marked_as_such_and_one_at_fault_is_not() {
    let slow = Measured { latency_us: 2.4, gbps: 90.0 };
    let of = |node, partner, _| match [node, partner] {
        pair if pair.contains(&5) => Ok(slow),
        pair if pair.contains(&9) => Err("the port is DOWN".to_owned()),
        _ => Ok(USUAL),
    };
    let mut evidence = job(32, 1, Extent::Doubling, &gpu, &of);
    let mut round = evidence.rounds();
    for _ in 0..culprit::MOST_TIMES {
        for pairs in culprit::next_rounds(&evidence, &outliers::suspects(&evidence, None)) {
            for (node, partner) in pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
                let outcome = PairOutcome::Rails(vec![RailReport::new(0, of(node, partner, 0))]);
                evidence.add(PairReport { round, node, partner, seconds: 1.0, outcome });
            }
            round += 1;
        }
    }
    let data = PageData::new(&judge(&evidence, &Inputs::default()), MOST_CELLS);
    assert_eq!(data.slow, [(5, 0)]);
    assert!(data.marked.contains(&(5, 0)) && data.marked.contains(&(9, 0)), "{:?}", data.marked);
    let refused =
        PageData::new(&judge(&evidence, &Inputs { enforce_slow: true, ..Inputs::default() }), MOST_CELLS);
    assert_eq!((refused.slow, refused.marked.contains(&(5, 0))), (vec![], true));
}
