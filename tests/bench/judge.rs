//! Measures how long node 0 of a preflight takes to judge ten thousand nodes, and how this grows. `make
//! bench` runs it, and `make bench BENCHES=judge` runs only this.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rdma_init::preflight::judge::culprit;
use rdma_init::preflight::judge::evidence::{Evidence, Member};
use rdma_init::preflight::judge::outliers;
use rdma_init::preflight::judge::verdict::{Inputs, judge};
use rdma_init::preflight::meet::schedule::{Extent, Schedule};
use rdma_init::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};

const NODES: [u32; 3] = [2500, 5000, 10_000];
const RAILS: u16 = 8;

/// The bandwidth of healthy rails, that of slow rails, and the one that the user wants, in Gbit/s.
const SOUND: f32 = 390.0;
const SLOW: f32 = 100.0;
const WANTED: f32 = 300.0;

/// The benchmark fails if one step takes longer, because node 0 sends nothing to the nodes in the meantime.
const LONGEST: Duration = Duration::from_secs(2);

/// The result of a pair on a rail: `None` if it fails, or else its bandwidth.
type Comes = fn(u32, u32, u16) -> Option<f32>;

const JOBS: [(&str, Option<f32>, Comes); 3] = [
    ("10 % of the pairs fail", None, |a, b, _| (drawn(a, b, 0) >= 100).then_some(SOUND)),
    ("10 % of the nodes fail", None, |a, b, _| {
        [a, b].into_iter().all(|node| drawn(node, 0, 1) >= 100).then_some(SOUND)
    }),
    ("40 % of the pairs are below --min-bandwidth", Some(WANTED), |a, b, rail| {
        Some(if drawn(a, b, u64::from(rail)) < 400 { SLOW } else { SOUND })
    }),
];

fn main() -> ExitCode {
    println!("\n## The judge of a preflight, {RAILS} rails\n");
    println!(
        "| job | nodes | seconds for second tries, once | for the verdict | for the lines of all nodes |"
    );
    println!("|---|---:|---:|---:|---:|");
    let mut held = true;
    for (name, least_gbps, comes) in JOBS {
        for nodes in NODES {
            let evidence = evidence(nodes, comes);
            let inputs = Inputs { least_gbps, enforce_slow: true, ..Inputs::default() };
            let mut steps = [Duration::ZERO; 3];
            let start = Instant::now();
            culprit::next_rounds(&evidence, &outliers::suspects(&evidence, least_gbps));
            steps[0] = start.elapsed();
            let start = Instant::now();
            let verdict = judge(&evidence, &inputs);
            steps[1] = start.elapsed();
            let start = Instant::now();
            let bytes: usize = (0..nodes).map(|node| verdict.line_of(node).len()).sum();
            steps[2] = start.elapsed();
            assert!(bytes > 0, "each node is told a line");
            let [again, judged, told] = steps.map(|step| format!("{:.2}", step.as_secs_f64()));
            println!("| {name} | {nodes} | {again} | {judged} | {told} |");
            held &= steps.into_iter().all(|step| step < LONGEST);
        }
    }
    if held {
        return ExitCode::SUCCESS;
    }
    eprintln!("a step takes more than {LONGEST:?}");
    ExitCode::FAILURE
}

/// Makes the evidence of a job whose nodes have tested the pairs of the schedule.
fn evidence(nodes: u32, comes: Comes) -> Evidence {
    let schedule = Schedule { nodes, extent: Extent::Doubling };
    let member = |node: u32| Member {
        name: format!("gpu-{node:05}"),
        rails: (0..RAILS).map(|rail| format!("mlx5_{rail}")).collect(),
        rates: vec![400.0; RAILS.into()],
        is_verbs: true,
        ..Member::default()
    };
    let rounds = u16::try_from(schedule.rounds()).expect("few rounds");
    let mut evidence = Evidence::new((0..nodes).map(member).collect(), rounds);
    for round in 0..rounds {
        for (low, high) in schedule.pairs(round.into()) {
            for [node, partner] in [[low, high], [high, low]] {
                let rail = |rail: u16| {
                    let measured = comes(low, high, rail).map(|gbps| Measured { latency_us: 2.4, gbps });
                    RailReport::new(
                        rail,
                        measured.ok_or_else(|| "transport retry counter exceeded".to_owned()),
                    )
                };
                let outcome = PairOutcome::Rails((0..RAILS).map(rail).collect());
                evidence.add(PairReport { round, node, partner, seconds: 1.0, outcome });
            }
        }
    }
    evidence
}

/// Returns a number below 1,000 that depends only on these three.
fn drawn(a: u32, b: u32, salt: u64) -> u64 {
    let mut mixed = (u64::from(a) << 40) ^ (u64::from(b) << 16) ^ salt;
    for _ in 0..3 {
        mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ (mixed >> 31);
    }
    (mixed >> 20) % 1000
}
