//! Writes the verdict about all nodes of a job for people, and the faulty nodes for a scheduler.

use std::io::{self, Write};

use crate::config::Excluded;
use crate::facts::hostlist;
use crate::preflight::judge::bisection;
use crate::preflight::judge::cross;
use crate::preflight::judge::evidence::Evidence;
use crate::preflight::judge::verdict::Verdict;
use crate::preflight::judge::words::{self, rail_of};
use crate::text::{WIDEST, counted, name_program, visible};

/// The most faults, and the most warnings of each kind, that are shown. The document has all of them.
const SHOWN: usize = 24;

/// Writes the table.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
    let evidence = verdict.evidence;
    writeln!(out, "rdma-init {} preflight: {}", env!("CARGO_PKG_VERSION"), headline(verdict))?;
    let (warnings, faults): (Vec<_>, Vec<_>) = verdict.faults.iter().partition(|fault| fault.is_warning());
    let faults = faults.iter().map(|fault| (words::fault(evidence, fault), words::fix(evidence, fault)));
    write_some(out, "FAILED", faults)?;
    let slow = verdict.slow.iter().map(|slow| (words::slow(evidence, slow), ""));
    write_some(out, if verdict.is_slow_refused { "FAILED" } else { "slow" }, slow)?;
    let unsteady = warnings.iter().map(|fault| (words::fault(evidence, fault), words::fix(evidence, fault)));
    write_some(out, "warning", unsteady)?;
    write_some(out, "warning", verdict.inputs.warnings.iter().map(|warning| (visible(warning), "")))?;
    write_rails(out, evidence)?;
    let below = [bisection::sentence(evidence), cross::sentence(evidence)];
    below.into_iter().flatten().try_for_each(|said| writeln!(out, "  {said}"))
}

fn headline(verdict: &Verdict) -> String {
    let word = match (verdict.passed, verdict.warning_count()) {
        (false, _) => "FAILED".to_owned(),
        (true, 0) => "passed".to_owned(),
        (true, some) => format!("passed with {}", counted(some, "warning")),
    };
    format!("{word} ({})", extent(verdict))
}

/// Returns the extent of the test: `31 of 32 nodes, 8 rails, 82 pairs (2 of them second tries), 14.2 s`.
pub(super) fn extent(verdict: &Verdict) -> String {
    let evidence = verdict.evidence;
    let (all, gone) = (evidence.members().len(), evidence.gone().len());
    let nodes = match gone {
        0 => counted(all, "node"),
        _ => format!("{} of {}", all.saturating_sub(gone), counted(all, "node")),
    };
    let again = evidence.tries().iter().filter(|one| evidence.is_again(one.round)).count();
    let again = if again == 0 { String::new() } else { format!(" ({again} of them second tries)") };
    let (tried, scheduled) = (evidence.tried(), evidence.scheduled());
    let pairs = match tried == scheduled {
        true => counted(tried, "pair"),
        false => format!("{tried} of {}", counted(scheduled, "pair")),
    };
    let time = words::seconds(verdict.inputs.seconds);
    format!("{nodes}, {}, {pairs}{again}, {time}", words::rails(evidence, &verdict.inputs.transport))
}

fn write_some<'a>(
    out: &mut dyn Write,
    word: &str,
    lines: impl Iterator<Item = (String, &'a str)>,
) -> io::Result<()> {
    let mut left_out = 0;
    for (index, (line, fix)) in lines.enumerate() {
        if index >= SHOWN {
            left_out += 1;
            continue;
        }
        writeln!(out, "  {word:7}  {line}")?;
        if !fix.is_empty() {
            writeln!(out, "           fix: {}", name_program(fix))?;
        }
    }
    match left_out {
        0 => Ok(()),
        more => writeln!(out, "  {word:7}  and {more} more (--json has all of them)"),
    }
}

/// The typical figures of a rail, and the worst pair.
pub(super) struct RailLine {
    pub name: String,
    pub pairs: usize,
    /// The median and the worst, in microseconds.
    pub latency: [f32; 2],
    /// The median and the least, in Gbit/s.
    pub gbps: [f32; 2],
    /// The two nodes with the least bandwidth.
    pub worst: String,
}

/// Returns a line for each rail.
pub(super) fn rails(evidence: &Evidence) -> Vec<RailLine> {
    let there = |node: &u32| !evidence.gone().contains_key(node);
    let nodes: Vec<u32> = (0..evidence.members().len() as u32).filter(there).collect();
    let line = |rail: usize| {
        let measured = evidence.tries().iter().filter_map(|one| Some((one.nodes, one.measured(rail)?)));
        let mut all: Vec<_> = measured.collect();
        all.sort_by(|a, b| a.1.gbps.total_cmp(&b.1.gbps));
        let mut latencies: Vec<f32> = all.iter().map(|(_, of)| of.latency_us).collect();
        latencies.sort_by(f32::total_cmp);
        let latency = |place: usize| latencies.get(place).copied().unwrap_or_default();
        let gbps = |place: usize| all.get(place).map_or(0.0, |(_, of)| of.gbps);
        let ends = all.first().map(|(nodes, _)| nodes.map(|node| evidence.name(node)).join(" - "));
        RailLine {
            name: rail_of(evidence, rail, &nodes),
            pairs: all.len(),
            latency: [latency(all.len() / 2), latency(all.len().saturating_sub(1))],
            gbps: [gbps(all.len() / 2), gbps(0)],
            worst: ends.unwrap_or_default(),
        }
    };
    (0..evidence.rails()).map(line).collect()
}

fn write_rails(out: &mut dyn Write, evidence: &Evidence) -> io::Result<()> {
    let rails = rails(evidence);
    let width = rails.iter().map(|rail| rail.name.chars().count()).max().unwrap_or_default().clamp(4, WIDEST);
    if !rails.is_empty() {
        let (latency, bandwidth) = ("us: median, worst", "Gbit/s: median, least");
        writeln!(out, "  {:width$}  {:>5}  {latency:>18}  {bandwidth:>21}  worst pair", "rail", "pairs")?;
    }
    rails.iter().try_for_each(|RailLine { name, pairs, latency, gbps, worst }| {
        if *pairs == 0 {
            return writeln!(out, "  {name:width$}  {pairs:>5}");
        }
        let two = |values: &[f32; 2]| values.map(words::number).join(", ");
        let (latency, gbps) = (two(latency), two(gbps));
        writeln!(out, "  {name:width$}  {pairs:>5}  {latency:>18}  {gbps:>21}  {worst}")
    })
}

/// Writes the names of the faulty nodes. If there are none, the file is empty.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write_excluded(out: &mut dyn Write, verdict: &Verdict, format: Excluded) -> io::Result<()> {
    let names = verdict.exclude();
    match format {
        Excluded::Lines => names.iter().try_for_each(|name| writeln!(out, "{name}")),
        Excluded::Slurm if names.is_empty() => Ok(()),
        Excluded::Slurm => writeln!(out, "{}", hostlist::compress(&names)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::judge::evidence::{Gone, Member};
    use crate::preflight::judge::verdict::{Inputs, judge};
    use crate::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};
    use crate::preflight::who::scheduler::Name;

    fn job() -> Evidence {
        let member = |node| Member {
            name: format!("gpu-{node}"),
            of_launcher: Name::Launcher(format!("gpu-{node}")),
            rails: vec![format!("mlx5_{}", node / 3)],
            ..Member::default()
        };
        let mut evidence = Evidence::new((0..4).map(member).collect(), 2);
        for (round, node, partner, result) in [
            (0, 0, 1, Ok(390.0)),
            (1, 0, 2, Err("the port is DOWN")),
            (1, 1, 2, Ok(385.0)),
            (2, 0, 2, Err("the port is DOWN")),
        ] {
            let result = result.map(|gbps| Measured { latency_us: 2.5, gbps }).map_err(str::to_owned);
            let outcome = PairOutcome::Rails(vec![RailReport::new(0, result)]);
            evidence.add(PairReport { round, node, partner, seconds: 1.0, outcome });
        }
        evidence.lose(3, Gone::NeverJoined("10m".into()));
        evidence
    }

    #[test]
    fn the_table_says_who_and_what() {
        let evidence = job();
        let warnings = ["gpu-1 has another driver".to_owned()];
        let verdict =
            judge(&evidence, &Inputs { seconds: 12.0, warnings: warnings.into(), ..Inputs::default() });
        let mut text = Vec::new();
        write(&mut text, &verdict).unwrap();
        let text = String::from_utf8(text).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            text,
            format!(
                "\
rdma-init {version} preflight: FAILED (3 of 4 nodes, 1 rail, 4 pairs (1 of them second tries), 12.0 s)
  FAILED   gpu-3 (node 3) did not join within 10m
           fix: Check that it was started, that it resolves the name of node 0 and reaches its port, and that it has the same RDMA_INIT_TOKEN; its log shows what it is waiting for.
  FAILED   between gpu-0 and gpu-2 on rail 0 (mlx5_0): both pass with other peers: the port is DOWN
           fix: Check the links and switches between the two: error counters, routes, MTU.
  warning  gpu-1 has another driver
  rail             pairs   us: median, worst  Gbit/s: median, least  worst pair
  rail 0 (mlx5_0)      2          2.50, 2.50               390, 385  gpu-1 - gpu-2
"
            )
        );
    }

    #[test]
    fn the_nodes_at_fault_are_written_for_a_scheduler() {
        let of_launcher = |node| Name::Launcher(format!("gpu-{node}"));
        let member = |node| Member { of_launcher: of_launcher(node), ..Member::default() };
        let evidence = Evidence::new((0..8).map(member).collect(), 1);
        let unfit = [1, 2, 3].map(|node| (node, "x".to_owned()));
        let verdict = judge(&evidence, &Inputs { unfit: unfit.into(), ..Inputs::default() });
        let written = |verdict: &Verdict, format| {
            let mut text = Vec::new();
            write_excluded(&mut text, verdict, format).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(written(&verdict, Excluded::Lines), "gpu-1\ngpu-2\ngpu-3\n");
        assert_eq!(written(&verdict, Excluded::Slurm), "gpu-[1-3]\n");
        let half = [1, 2, 3, 4].map(|node| (node, "x".to_owned()));
        let verdict = judge(&evidence, &Inputs { unfit: half.into(), ..Inputs::default() });
        assert_eq!(written(&verdict, Excluded::Slurm), "", "a job without them is another job");
        let sound = Evidence::new(vec![Member::default(); 2], 1);
        assert_eq!(written(&judge(&sound, &Inputs::default()), Excluded::Slurm), "");
    }
}
