//! The results of the jobs of each kind.

use std::collections::BTreeMap;
use std::fmt;

use crate::preflight::judge::culprit::{Fault, What};
use crate::preflight::judge::verdict::Verdict;
use crate::preflight::judge::words;

/// The jobs of one kind.
pub(super) struct Row {
    name: &'static str,
    pub bounds: [usize; 2],
    pub cases: usize,
    pub named: usize,
    /// The jobs in which a sound node is blamed: seeds and numbers of nodes.
    pub innocents: Vec<(u64, u32)>,
    /// The jobs in which the fault is not named or a sound node is blamed: seeds, numbers of nodes, and
    /// the texts of the verdicts.
    wrong: Vec<(u64, u32, String)>,
    /// How often the verdicts reported each combination of faults.
    said: BTreeMap<String, usize>,
}

impl Row {
    pub(super) fn new(name: &'static str, bounds: [usize; 2]) -> Row {
        let (innocents, wrong, said) = (Vec::new(), Vec::new(), BTreeMap::new());
        Row { name, bounds, cases: 0, named: 0, innocents, wrong, said }
    }

    pub(super) fn add(&mut self, seed: u64, nodes: u32, verdict: &Verdict, is_named: bool, innocents: usize) {
        self.cases += 1;
        self.named += usize::from(is_named);
        if innocents > 0 {
            self.innocents.push((seed, nodes));
        }
        if !is_named || innocents > 0 {
            self.wrong.push((seed, nodes, shown(verdict)));
        }
        *self.said.entry(said(verdict)).or_default() += 1;
    }
}

/// Returns everything that a verdict says.
fn shown(verdict: &Verdict) -> String {
    let faults = verdict.faults.iter().map(|fault| words::fault(verdict.evidence, fault));
    let slow = verdict.slow.iter().map(|slow| words::slow(verdict.evidence, slow));
    faults.chain(slow).collect::<Vec<_>>().join("; ")
}

/// Returns the kinds of faults in a verdict: `cut` or `node + link`.
fn said(verdict: &Verdict) -> String {
    let mut all: Vec<&str> = verdict.faults.iter().map(kind).collect();
    all.extend(verdict.slow.first().map(|_| "slow"));
    all.dedup();
    if all.is_empty() { "passed".to_owned() } else { all.join(" + ") }
}

fn kind(fault: &Fault) -> &'static str {
    match &fault.what {
        What::Gone { .. } => "gone",
        What::Owes { .. } => "owes",
        What::Unfinished { .. } => "unfinished",
        What::Contested { .. } => "contested",
        What::Unfit { .. } => "unfit",
        What::Duplicate(_) => "duplicate",
        What::Loopback(_) => "loopback",
        What::Node { .. } => "node",
        What::Mixed { .. } => "mixed",
        What::Uneven { .. } => "uneven",
        What::Link { .. } => "link",
        What::Cut { .. } => "cut",
        What::Partial { .. } => "partial",
        What::Apart { .. } => "apart",
        What::Unreached { .. } => "unreached",
        What::Flapping { .. } => "flapping",
        What::Scattered { .. } => "scattered",
        What::Unsteady { .. } => "unsteady",
    }
}

impl fmt::Display for Row {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        let percent = self.named as f64 * 100.0 / self.cases.max(1) as f64;
        let said: Vec<String> = self.said.iter().map(|(said, count)| format!("{said} {count}")).collect();
        write!(
            to,
            "| {} | {} | {percent:.1} % | {} | {} |",
            self.name,
            self.cases,
            self.innocents.len(),
            said.join(", ")
        )?;
        // Shows one of them, or all with `{:#}`.
        let (most, longest) = if to.alternate() { (self.wrong.len(), u16::MAX.into()) } else { (1, 400) };
        self.wrong.iter().take(most).try_for_each(|(seed, nodes, reason)| {
            write!(to, "\n  such as seed {seed:#x} with {nodes} nodes: {reason:.longest$}")
        })
    }
}

/// The confusion matrix.
pub(super) struct Matrix {
    pub rows: Vec<Row>,
}

impl fmt::Display for Matrix {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        writeln!(to, "| planted | jobs | named | sound nodes accused | the verdicts say |")?;
        writeln!(to, "|---|---:|---:|---:|---|")?;
        self.rows.iter().try_for_each(|row| match to.alternate() {
            true => writeln!(to, "{row:#}"),
            false => writeln!(to, "{row}"),
        })
    }
}
