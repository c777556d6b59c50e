//! Writes the verdict about all nodes of a job as one page: the faulty nodes, and every pair in a heat map.
//! The page is self-contained and loads nothing.
//!
//! Names and reasons come from other nodes. All of them are escaped, even within the data of the script,
//! and the page's content security policy keeps a browser from loading or sending anything.

use std::io::{self, Write};

use serde::Serialize;

use super::preflight::{extent, rails};
use crate::preflight::judge::cross;
use crate::preflight::judge::culprit::{Place, What};
use crate::preflight::judge::evidence::{Evidence, Gone, Try, TryOutcome};
use crate::preflight::judge::outliers::Who;
use crate::preflight::judge::verdict::Verdict;
use crate::preflight::judge::words;
use crate::preflight::who::addresses::{Duplicate, Loopback};
use crate::text::{name_program, visible};

const STYLE: &str = include_str!("preflight_page/page.css");
const SCRIPT: &str = include_str!("preflight_page/page.js");

/// The most faults, and the most slow nodes and links, that are listed. The document has all of them.
const LISTED: usize = 200;

/// How many warnings are visible at first; the others are collapsed.
const OPEN: usize = 10;

/// The most cells; each is a pair on one rail. With more, the page would exceed five MB.
const MOST_CELLS: usize = 800_000;

/// Stored for a rail of a pair instead of a value.
const FAILED: u16 = 65_535;
const UNTRIED: u16 = 65_534;

/// Writes the page.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
    let evidence = verdict.evidence;
    let (word, class) = if verdict.passed { ("passed", "passed") } else { ("FAILED", "failed") };
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>Preflight {word}: {} nodes</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        evidence.members().len()
    )?;
    writeln!(out, "<h1>Preflight <span class=\"{class}\">{word}</span></h1>")?;
    let extent = extent(verdict);
    let of_job = verdict.inputs.job.as_ref().map(|job| format!("job {job}"));
    let program = format!("rdma-init {}, over {}", env!("CARGO_PKG_VERSION"), verdict.inputs.transport);
    let program: Vec<String> = of_job.into_iter().chain(verdict.time()).chain([program]).collect();
    let program = program.join(" · ");
    writeln!(out, "<p>{}</p>\n<p class=\"soft\">{}</p>", escape(&extent), escape(&program))?;
    write_lists(out, verdict)?;
    write_rails(out, evidence)?;
    write_maps(out, verdict)?;
    writeln!(out, "</body>\n</html>")
}

fn write_lists(out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
    let evidence = verdict.evidence;
    let (warnings, faults): (Vec<_>, Vec<_>) = verdict.faults.iter().partition(|fault| fault.is_warning());
    let faults = faults.iter().map(|fault| (words::fault(evidence, fault), words::fix(evidence, fault)));
    write_list(out, "Faults", "fault", &mut faults.into_iter())?;
    let names = verdict.exclude();
    if !names.is_empty() {
        let list = escape(&crate::facts::hostlist::compress(&names));
        writeln!(out, "<p class=\"soft\">To start again without the faulty nodes: <code>{list}</code></p>")?;
    }
    let slow = verdict.slow.iter().map(|slow| (words::slow(evidence, slow), ""));
    let class = if verdict.is_slow_refused { "fault" } else { "slow" };
    write_list(out, "Slow", class, &mut slow.into_iter())?;
    let unsteady = warnings.iter().map(|fault| (words::fault(evidence, fault), words::fix(evidence, fault)));
    let others = verdict.inputs.warnings.iter().map(|warning| (visible(warning), ""));
    write_list(out, "Warnings", "slow", &mut unsteady.chain(others))
}

fn write_list(
    out: &mut dyn Write,
    title: &str,
    class: &str,
    lines: &mut dyn Iterator<Item = (String, &'static str)>,
) -> io::Result<()> {
    let mut lines = lines;
    let shown: Vec<_> = (&mut lines).take(LISTED).collect();
    let more = lines.count();
    if shown.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>{title}</h2>\n<ul>")?;
    let folds = class == "slow" && shown.len() > OPEN;
    for (place, (line, fix)) in shown.iter().enumerate() {
        if folds && place == OPEN {
            let folded = shown.len() - OPEN + more;
            writeln!(out, "</ul>\n<details>\n<summary>{folded} more</summary>\n<ul>")?;
        }
        write!(out, "<li class=\"{class}\">{}", escape(line))?;
        if !fix.is_empty() {
            write!(out, "<br><span class=\"soft\">{}</span>", escape(&name_program(fix)))?;
        }
        writeln!(out, "</li>")?;
    }
    if more > 0 {
        writeln!(out, "<li class=\"{class}\">and {more} more, which the JSON document lists</li>")?;
    }
    writeln!(out, "</ul>{}", if folds { "\n</details>" } else { "" })
}

fn write_rails(out: &mut dyn Write, evidence: &Evidence) -> io::Result<()> {
    let rails = rails(evidence);
    if rails.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>Rails</h2>\n<div class=\"wide\"><table>\n<tr><th>rail</th><th>pairs</th><th>latency, µs</th><th>worst</th>\
         <th>bandwidth, Gbit/s</th><th>least</th><th>between</th></tr>"
    )?;
    for rail in &rails {
        let figures = [rail.latency, rail.gbps].concat().into_iter().map(|value| match rail.pairs {
            0 => String::new(),
            _ => words::number(value),
        });
        let cells = std::iter::once(rail.name.clone()).chain([rail.pairs.to_string()]).chain(figures);
        let cells: String = cells.map(|cell| format!("<td>{}</td>", escape(&cell))).collect();
        writeln!(out, "<tr>{cells}<td>{}</td></tr>", escape(&rail.worst))?;
    }
    writeln!(out, "</table></div>")?;
    match cross::sentence(evidence) {
        Some(said) => writeln!(out, "<p class=\"soft\">{}</p>", escape(&said)),
        None => Ok(()),
    }
}

fn write_maps(out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
    if verdict.evidence.tries().is_empty() {
        return Ok(());
    }
    let data = PageData::new(verdict, MOST_CELLS);
    let note = match data.rails.len() == verdict.evidence.rails() && !data.is_reduced {
        true => "",
        false => {
            "<p class=\"soft\">There are too many pairs for one page: it shows the worst rail of each, and of a still larger job only what failed or is slow. The JSON document contains every pair.</p>\n"
        }
    };
    write!(
        out,
        "<noscript><p>The maps below need the script of this page.</p></noscript>\n\
         <h2>Maps</h2>\n{note}<div class=\"tools\">\n\
         <label>Figure <select id=\"figure\"><option value=\"0\">bandwidth</option><option value=\"1\">latency</option></select></label>\n\
         <div class=\"legend\"><span style=\"--of:var(--c0)\">95 % of the rail's median or better</span>\
         <span style=\"--of:var(--c1)\">85 %</span><span style=\"--of:var(--c2)\">70 %</span>\
         <span style=\"--of:var(--c3)\">50 %</span><span style=\"--of:var(--c4)\">less</span>\
         <span style=\"--of:var(--failed)\">failed</span><span style=\"--of:var(--none)\">not tried</span>\
         <span class=\"mark\">named above</span></div>\n</div>\n\
         <p class=\"told\" id=\"told\" aria-live=\"polite\"></p>\n\
         <h2>Nodes</h2>\n<p class=\"soft\">Each node, from left to right, with the best of its pairs on each rail; a node at fault has the color of what failed, and a slow one that of less.</p>\n\
         <div><canvas id=\"nodes\"></canvas></div>\n\
         <h2>Pairs</h2>\n<div class=\"tools\"><label>Rail <select id=\"rail\"><option value=\"-1\">the worst of all</option></select></label>\n\
         <span class=\"soft\" id=\"order\"></span></div>\n\
         <div><canvas id=\"pairs\"></canvas></div>\n<script type=\"application/json\" id=\"data\">"
    )?;
    let json = serde_json::to_string(&data).map_err(io::Error::other)?;
    // Within a script, only `<` can end the script or start a comment, and JSON contains it only in
    // strings.
    out.write_all(json.replace('<', "\\u003c").as_bytes())?;
    write!(out, "</script>\n<script>\n{SCRIPT}</script>\n")
}

/// Escapes a text, so that a browser shows it literally.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The data that the script draws.
#[derive(Serialize)]
struct PageData {
    names: Vec<String>,
    rails: Vec<String>,
    rounds: u16,
    /// The number of rounds before the second tries.
    first: u16,
    /// Whether every node was scheduled to test with every other one.
    full: bool,
    /// For each rail, the medians of bandwidth and latency, in tenths.
    usual: Vec<[u16; 2]>,
    /// The faulty nodes that the lists name, with the rail; -1 for all rails.
    marked: Vec<(u32, i32)>,
    /// The nodes that are slow but not faulty, with the rail.
    slow: Vec<(u32, i32)>,
    between: Vec<(u32, u32, i32)>,
    gone: Vec<u32>,
    /// 16-bit numbers in base64: round, lower node, and higher node of each pair.
    pairs: String,
    /// For each pair and rail, bandwidth in tenths of Gbit/s, and latency in tenths of microseconds, in the
    /// same form.
    figures: String,
    #[serde(skip)]
    is_reduced: bool,
}

impl PageData {
    /// Makes the data, with at most this many cells.
    fn new(verdict: &Verdict, most: usize) -> PageData {
        let evidence = verdict.evidence;
        let all = evidence.rails();
        let lines = rails(evidence);
        let is_squeezed = evidence.tries().len() * all > most;
        let is_reduced = evidence.tries().len() > most;
        let tenth = |value: f32| (value * 10.0).round().clamp(0.0, f32::from(UNTRIED - 1)) as u16;
        let usual: Vec<[u16; 2]> =
            lines.iter().map(|line| [tenth(line.gbps[0]), tenth(line.latency[0])]).collect();
        let cell = |one: &Try, rail: usize| match (one.meeting(), one.rail(rail), one.measured(rail)) {
            (_, _, Some(of)) => [tenth(of.gbps), tenth(of.latency_us)],
            (Some(TryOutcome::Failed(..)), ..) | (_, Some(TryOutcome::Failed(..)), _) => [FAILED; 2],
            _ => [UNTRIED; 2],
        };
        let (mut pairs, mut figures) = (Vec::new(), Vec::new());
        for one in evidence.tries() {
            let cells = (0..all).map(|rail| cell(one, rail));
            let cells: Vec<[u16; 2]> =
                if is_squeezed { worst(cells).into_iter().collect() } else { cells.collect() };
            let is_calm = |[gbps, _]: &[u16; 2]| {
                *gbps < UNTRIED && usual.first().is_some_and(|of| *gbps >= of[0] / 10 * 8)
            };
            if is_reduced && cells.iter().all(is_calm) {
                continue;
            }
            pairs.extend([one.round, half(one.nodes[0]), half(one.nodes[1])]);
            figures.extend(cells.into_iter().flatten());
        }
        let names = |count: usize| (0..count).map(|node| evidence.name(node as u32)).collect();
        let absent = evidence.gone().values().filter(|gone| matches!(gone, Gone::NeverJoined(_))).count();
        let came = evidence.members().len().saturating_sub(absent);
        let mut data = PageData {
            names: names(evidence.members().len()),
            rails: if is_squeezed {
                vec!["the worst rail".to_owned()]
            } else {
                lines.into_iter().map(|line| line.name).collect()
            },
            rounds: evidence.tries().iter().map(|one| one.round.saturating_add(1)).max().unwrap_or_default(),
            first: evidence.rounds(),
            // With fewer rounds, a node cannot have tested with all others.
            full: came > 3 && usize::from(evidence.rounds()) >= came - 1,
            usual,
            marked: Vec::new(),
            slow: Vec::new(),
            between: Vec::new(),
            gone: evidence.gone().keys().copied().collect(),
            pairs: base64(&pairs),
            figures: base64(&figures),
            is_reduced,
        };
        data.mark(verdict, is_squeezed);
        data
    }

    /// Marks the nodes and pairs that the lists name.
    fn mark(&mut self, verdict: &Verdict, is_squeezed: bool) {
        for fault in &verdict.faults {
            let rails: Vec<i32> = match &fault.place {
                Place::Rails(rails) if !is_squeezed => rails.iter().map(|rail| number(*rail)).collect(),
                _ => vec![-1],
            };
            for rail in rails {
                match &fault.what {
                    What::Gone { node, .. }
                    | What::Owes { node, .. }
                    | What::Unfit { node }
                    | What::Node { node, .. }
                    | What::Flapping { node, .. } => {
                        self.marked.push((*node, rail));
                    }
                    What::Duplicate(Duplicate { nodes, .. })
                    | What::Loopback(Loopback { nodes, .. })
                    | What::Cut { nodes, .. }
                    | What::Partial { nodes, .. } => {
                        self.marked.extend(nodes.iter().map(|node| (*node, rail)));
                    }
                    What::Link { nodes } | What::Unsteady { nodes } => {
                        self.between.push((nodes[0], nodes[1], rail));
                    }
                    What::Uneven { .. } | What::Mixed { .. } => {
                        self.marked.extend(fault.accused().into_iter().map(|node| (node, rail)));
                    }
                    What::Scattered { pairs, .. } => {
                        self.between.extend(pairs.iter().map(|pair| (pair[0], pair[1], rail)));
                    }
                    What::Apart { .. }
                    | What::Unfinished { .. }
                    | What::Unreached { .. }
                    | What::Contested { .. } => {}
                }
            }
        }
        let rail_of = |rail: usize| if is_squeezed { -1 } else { number(rail) };
        for slow in &verdict.slow {
            match slow.who {
                Who::Node { node, rail } => {
                    self.marked.push((node, rail_of(rail)));
                    if !verdict.is_slow_refused {
                        self.slow.push((node, rail_of(rail)));
                    }
                }
                Who::Link { nodes, rail } => self.between.push((nodes[0], nodes[1], rail_of(rail))),
                Who::Group { .. } | Who::Rail { .. } => {}
            }
        }
    }
}

/// Returns the worst rail of a pair: one that failed, or otherwise the one with the least bandwidth.
fn worst(cells: impl Iterator<Item = [u16; 2]>) -> Option<[u16; 2]> {
    cells
        .filter(|[gbps, _]| *gbps != UNTRIED)
        .min_by_key(|[gbps, _]| gbps.wrapping_add(1))
        .or(Some([UNTRIED; 2]))
}

fn number(rail: usize) -> i32 {
    i32::try_from(rail).unwrap_or(-1)
}

fn half(node: u32) -> u16 {
    u16::try_from(node).unwrap_or(u16::MAX)
}

/// Returns 16-bit numbers in base64 (RFC 4648), low byte first.
fn base64(numbers: &[u16]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_there = digit <= three.len();
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if is_there { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests;
