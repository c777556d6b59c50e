//! The verdict about all nodes of a job, for people; and the nodes at fault, for a scheduler.

use std::io::{self, Write};

use crate::preflight::evidence::Evidence;
use crate::preflight::hostlist;
use crate::preflight::verdict::Verdict;
use crate::preflight::words::{self, rail_of};
use crate::text::{counted, visible};

/// Faults, and warnings of each kind, that are shown. The document has all of them.
const SHOWN: usize = 24;

/// Writes the table of who and what.
///
/// # Errors
/// Whatever the sink gives.
pub fn write(out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
    let evidence = verdict.evidence;
    writeln!(out, "rdma-init {} preflight: {}", env!("CARGO_PKG_VERSION"), headline(verdict))?;
    let (warnings, faults): (Vec<_>, Vec<_>) = verdict.faults.iter().partition(|fault| fault.is_warning());
    let faults = faults.iter().map(|fault| (words::fault(evidence, fault), words::fix(fault)));
    write_some(out, "FAILED", faults)?;
    let slow = verdict.slow.iter().map(|slow| (words::slow(evidence, slow), ""));
    write_some(out, if verdict.is_slow_refused { "FAILED" } else { "slow" }, slow)?;
    let unsteady = warnings.iter().map(|fault| (words::fault(evidence, fault), words::fix(fault)));
    write_some(out, "warning", unsteady)?;
    write_some(out, "warning", verdict.warnings.iter().map(|warning| (visible(warning), "")))?;
    write_rails(out, evidence)
}

fn headline(verdict: &Verdict) -> String {
    let evidence = verdict.evidence;
    let (all, gone) = (evidence.members().len(), evidence.gone().len());
    let nodes = match gone {
        0 => counted(all, "node"),
        _ => format!("{} of {}", all.saturating_sub(gone), counted(all, "node")),
    };
    let again = evidence.tries().iter().filter(|one| evidence.is_again(one.round)).count();
    let again = if again == 0 { String::new() } else { format!(" ({again} of them second tries)") };
    let word = match (verdict.passed, verdict.warning_count()) {
        (false, _) => "FAILED".to_owned(),
        (true, 0) => "passed".to_owned(),
        (true, some) => format!("passed with {}", counted(some, "warning")),
    };
    let pairs = counted(evidence.tries().len(), "pair");
    let time = words::number(verdict.seconds as f32);
    format!("{word} ({nodes}, {}, {pairs}{again}, {time} s)", counted(evidence.rails(), "rail"))
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
            writeln!(out, "           fix: {fix}")?;
        }
    }
    match left_out {
        0 => Ok(()),
        more => writeln!(out, "  {word:7}  and {more} more (--json has all of them)"),
    }
}

/// A line for each rail: what is usual, and the worst pair.
fn write_rails(out: &mut dyn Write, evidence: &Evidence) -> io::Result<()> {
    let nodes: Vec<u32> = (0..).zip(evidence.members()).map(|(node, _)| node).collect();
    let nodes: Vec<u32> = nodes.into_iter().filter(|node| !evidence.gone().contains_key(node)).collect();
    let names: Vec<String> = (0..evidence.rails()).map(|rail| rail_of(evidence, rail, &nodes)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default().max(4);
    if !names.is_empty() {
        writeln!(
            out,
            "  {:width$}  {:>5}  {:>18}  {:>20}  worst pair",
            "rail", "pairs", "us: median, worst", "Gbit/s: median, least"
        )?;
    }
    for (rail, name) in names.iter().enumerate() {
        let mut all: Vec<_> =
            evidence.tries().iter().filter_map(|one| Some((one.nodes, one.measured(rail)?))).collect();
        all.sort_by(|a, b| a.1.gbps.total_cmp(&b.1.gbps));
        let (Some(least), Some(middle)) = (all.first(), all.get(all.len() / 2)) else {
            writeln!(out, "  {name:width$}  {:>5}", 0)?;
            continue;
        };
        let mut latencies: Vec<f32> = all.iter().map(|(_, of)| of.latency_us).collect();
        latencies.sort_by(f32::total_cmp);
        let number = |value: Option<&f32>| value.map_or_else(String::new, |value| words::number(*value));
        let latency = format!("{}, {}", number(latencies.get(latencies.len() / 2)), number(latencies.last()));
        let bandwidth = format!("{}, {}", words::number(middle.1.gbps), words::number(least.1.gbps));
        let ends = least.0.map(|node| evidence.name(node));
        writeln!(
            out,
            "  {name:width$}  {:>5}  {latency:>18}  {bandwidth:>21}  {} - {}",
            all.len(),
            ends[0],
            ends[1]
        )?;
    }
    Ok(())
}

/// How the nodes at fault are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Excluded {
    /// One name on each line.
    #[default]
    Lines,
    /// One list, as `--exclude` of Slurm takes it.
    Slurm,
}

/// Writes the names of the nodes at fault. Where there is none, the file is empty.
///
/// # Errors
/// Whatever the sink gives.
pub fn write_excluded(out: &mut dyn Write, verdict: &Verdict, format: Excluded) -> io::Result<()> {
    let names = verdict.exclude();
    match format {
        Excluded::Lines => names.iter().try_for_each(|name| writeln!(out, "{name}")),
        Excluded::Slurm if names.is_empty() => Ok(()),
        Excluded::Slurm => writeln!(out, "{}", hostlist::compress(&names)),
    }
}

/// How far the rounds are: `[#####.....] 48 of 96 pairs, round 3 of 6` for a terminal of so many
/// columns, and without the bar where there are none.
pub fn progress(done: usize, all: usize, stage: &str, columns: Option<usize>) -> String {
    let text = format!("{done} of {}, {stage}", counted(all, "pair"));
    let room = columns.map_or(0, |columns| columns.saturating_sub(text.len() + 4).min(40));
    if room < 10 {
        return text;
    }
    let full = (done * room).checked_div(all).unwrap_or_default().min(room);
    format!("[{}{}] {text}", "#".repeat(full), ".".repeat(room - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::evidence::{Gone, Member};
    use crate::preflight::pair::{Measured, PairOutcome, PairReport, RailReport};
    use crate::preflight::verdict::{Asked, judge};

    fn job() -> Evidence {
        let member = |node| Member { name: format!("gpu-{node}"), rails: vec![format!("mlx5_{}", node / 3)] };
        let mut evidence = Evidence::new((0..4).map(member).collect(), 2);
        for (round, node, partner, result) in [
            (0, 0, 1, Ok(390.0)),
            (1, 0, 2, Err("the port is DOWN")),
            (1, 1, 2, Ok(385.0)),
            (2, 0, 2, Err("the port is DOWN")),
        ] {
            let result = result.map(|gbps| Measured { latency_us: 2.5, gbps }).map_err(str::to_owned);
            let outcome = PairOutcome::Rails(vec![RailReport { rail: 0, result }]);
            evidence.add(PairReport { round, node, partner, seconds: 1.0, outcome });
        }
        evidence.lose(3, Gone::NeverCame("10m".into()));
        evidence
    }

    #[test]
    fn the_table_says_who_and_what() {
        let evidence = job();
        let warnings = ["gpu-1 has another driver".to_owned()];
        let verdict = judge(&evidence, &Asked { seconds: 12.0, warnings: &warnings, ..Asked::default() });
        let mut text = Vec::new();
        write(&mut text, &verdict).unwrap();
        let text = String::from_utf8(text).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            text,
            format!(
                "\
rdma-init {version} preflight: FAILED (3 of 4 nodes, 1 rail, 4 pairs (1 of them second tries), 12.0 s)
  FAILED   gpu-3 (node 3) has not come within 10m
           fix: See whether it was started, whether it resolves the name of node 0, and whether it reaches its port; its own log says for whom it waits.
  FAILED   between gpu-0 and gpu-2 on rail 0 (mlx5_0): both are well with others: the port is DOWN
           fix: Look at the links and switches on the way between the two: counters of errors, routes, MTU.
  warning  gpu-1 has another driver
  rail             pairs   us: median, worst  Gbit/s: median, least  worst pair
  rail 0 (mlx5_0)      2          2.50, 2.50               390, 385  gpu-1 - gpu-2
"
            )
        );
    }

    #[test]
    fn the_nodes_at_fault_are_written_for_a_scheduler() {
        let evidence = job();
        let unfit = [(1, "x".to_owned()), (2, "x".to_owned())];
        let verdict = judge(&evidence, &Asked { unfit: &unfit, ..Asked::default() });
        let written = |verdict: &Verdict, format| {
            let mut text = Vec::new();
            write_excluded(&mut text, verdict, format).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(written(&verdict, Excluded::Lines), "gpu-1\ngpu-2\ngpu-3\n");
        assert_eq!(written(&verdict, Excluded::Slurm), "gpu-[1-3]\n");
        let sound = Evidence::new(vec![Member::default(); 2], 1);
        assert_eq!(written(&judge(&sound, &Asked::default()), Excluded::Slurm), "");
    }

    #[test]
    fn progress_is_a_bar_where_there_is_room() {
        assert_eq!(progress(48, 96, "round 3 of 6", None), "48 of 96 pairs, round 3 of 6");
        assert_eq!(progress(48, 96, "round 3", Some(40)), "[######.......] 48 of 96 pairs, round 3");
        assert_eq!(progress(48, 96, "round 3", Some(20)), "48 of 96 pairs, round 3");
        assert_eq!(progress(0, 0, "x", None), "0 of 0 pairs, x");
    }
}
