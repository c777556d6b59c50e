//! Which of many nodes differ from the others. Pure: takes reports, and returns a comparison.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use super::brief::Brief;
use crate::facts::natural::natural;
use crate::facts::secret::shown;
use crate::self_test::check::Outcome;
use crate::self_test::report::Rail;
use crate::text::condensed;

/// The properties to compare in addition to the variables, in the order of [`fixed`].
pub(crate) const PROPERTIES: [&str; 16] = [
    "hca-count",
    "hcas",
    "link-layer",
    "rate",
    "gid-type",
    "gid-index",
    "mtu",
    "traffic-class",
    "driver",
    "firmware",
    "nccl",
    "profile",
    "imex-channels",
    "nvlink-clique",
    "nvlink-domain",
    "placement-group",
];

/// Returns what follows if nodes differ in a property, and what to do, as clauses; `None` if that depends on the
/// values.
pub(crate) fn consequence(property: &str) -> Option<&'static str> {
    (property == "placement-group").then_some(
        "nodes of different placement groups share no InfiniBand, so start all nodes of the job in one placement group or scale set",
    )
}

/// The ID for a report that says that a check failed, but not which one.
const UNNAMED: &str = "unnamed";

/// The most variables to compare. A job has fewer, and comparing this many on all nodes takes little
/// time.
const VARIABLES: usize = 500;

/// The memory that a text takes in addition to its own bytes: its entry in the set, and the allocator's
/// overhead.
const TEXT: usize = 64;

/// The nodes that were read. Only the compared parts of a report are kept, and each text is kept once.
#[derive(Debug, Default)]
pub struct ComparedNodes {
    texts: IndexSet<Box<str>>,
    /// The rows, keyed by the name of the node.
    rows: IndexMap<Text, Row>,
    repeated: Vec<Text>,
    /// The nodes whose reports differ from each other.
    contradicted: Vec<Text>,
    /// The approximate size in bytes.
    size: usize,
}

/// The number of a text in [`ComparedNodes::texts`].
type Text = usize;

#[derive(Debug, PartialEq, Eq)]
struct Row {
    fixed: [Cell; PROPERTIES.len()],
    filled: Vec<(Text, Text)>,
    /// What the user has set.
    set: Vec<(Text, Text)>,
    failed: Vec<Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// The property is not compared: for example, a node without HCAs has no rate that could differ.
    Apart,
    Nothing,
    Value(Text),
}

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Comparison<'a> {
    /// How many nodes there are.
    pub nodes: usize,
    /// Whether there are any nodes, and each property has the same value on all of them.
    pub agree: bool,
    /// The nodes that differ from a majority in some property.
    pub differing: Vec<&'a str>,
    pub properties: Vec<Compared<'a>>,
    pub failed: Vec<Failed<'a>>,
    /// The nodes with more than one report.
    pub repeated: Vec<&'a str>,
    /// The repeated nodes whose reports contradict each other. They may be several nodes with one name.
    pub contradicted: Vec<&'a str>,
    /// How many variables were not compared.
    pub variables_left_out: usize,
}

/// One property on all nodes.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Compared<'a> {
    /// One of [`PROPERTIES`], or `filled`.
    pub property: &'static str,
    /// The variable that rdma-init fills in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<&'a str>,
    /// The value that at least half of the nodes have, unless another one is just as frequent.
    pub majority: Option<Majority<'a>>,
    /// The other values, the most frequent first.
    pub others: Vec<Other<'a>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Majority<'a> {
    /// `None` if these nodes do not have the property.
    pub value: Option<&'a str>,
    pub count: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Other<'a> {
    pub value: Option<&'a str>,
    pub count: usize,
    /// In natural order.
    pub nodes: Vec<&'a str>,
}

/// A check that failed on at least one node.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Failed<'a> {
    pub id: &'a str,
    pub count: usize,
    pub nodes: Vec<&'a str>,
}

impl Comparison<'_> {
    /// Returns whether nothing needs attention.
    pub fn is_clean(&self) -> bool {
        self.agree && self.failed.is_empty() && self.contradicted.is_empty()
    }
}

impl ComparedNodes {
    /// Adds a report. If several reports have the same host, the last one counts.
    pub fn add(&mut self, host: &str, report: &Brief) {
        let mut row = Row {
            fixed: fixed(report).map(|value| match value {
                SeenValue::Apart => Cell::Apart,
                SeenValue::Nothing => Cell::Nothing,
                SeenValue::Value(text) => Cell::Value(self.text(&text)),
            }),
            filled: self.variables(&report.filled),
            set: self.variables(&report.set),
            failed: failed(report).map(|id| self.text(id)).collect(),
        };
        // The same check runs once for each device.
        row.failed.sort();
        row.failed.dedup();
        self.size += size_of::<Row>() + size_of_val(&*row.filled) + size_of_val(&*row.failed);
        self.size += size_of_val(&*row.set);
        let host = self.text(host);
        let last = self.rows.get(&host);
        if let Some(last) = last {
            self.repeated.push(host);
            if *last != row {
                self.contradicted.push(host);
            }
        }
        self.rows.insert(host, row);
    }

    /// Renames a node, because another node turned out to have the same name.
    pub fn rename(&mut self, old: &str, new: &str) {
        let [old, new] = [old, new].map(|name| self.text(name));
        if let Some((place, _, row)) = self.rows.shift_remove_full(&old) {
            self.rows.shift_insert(place, new, row);
        }
        let known = self.repeated.iter_mut().chain(&mut self.contradicted);
        known.filter(|known| **known == old).for_each(|known| *known = new);
    }

    /// Returns how much memory the nodes take, in bytes. This is an estimate.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the numbers of the names and the values of variables.
    fn variables(&mut self, variables: &BTreeMap<String, String>) -> Vec<(Text, Text)> {
        // The report may come from a version that did not hide secrets.
        let pair =
            |(variable, value): (&String, &String)| (self.text(variable), self.text(shown(variable, value)));
        variables.iter().map(pair).collect()
    }

    /// Returns the number of a text. Escapes control characters, so that none can reach a terminal. Two
    /// texts that differ only in control characters remain different.
    fn text(&mut self, text: &str) -> Text {
        let escaped: String;
        let text = if text.chars().any(char::is_control) {
            let escape =
                |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            escaped = text.chars().map(escape).collect();
            &escaped
        } else {
            text
        };
        match self.texts.get_index_of(text) {
            Some(number) => number,
            None => {
                self.size += text.len() + TEXT;
                self.texts.insert_full(text.into()).0
            }
        }
    }

    fn shown(&self, text: Text) -> &str {
        self.texts.get_index(text).map_or("", |text| text)
    }

    /// Returns the texts in natural order, each of them once.
    fn sorted(&self, texts: impl IntoIterator<Item = Text>) -> Vec<&str> {
        let mut texts: Vec<&str> = texts.into_iter().map(|text| self.shown(text)).collect();
        order(&mut texts);
        texts.dedup();
        texts
    }

    pub fn compare(&self) -> Comparison<'_> {
        let mut differing = Vec::new();
        let mut properties = Vec::new();
        for (index, property) in PROPERTIES.into_iter().enumerate() {
            let mut cells = self.rows.iter().map(|(&host, row)| (host, row.fixed[index]));
            properties.extend(self.tally(property, None, &mut cells, &mut differing));
        }
        let variables: IndexSet<Text> =
            self.rows.values().flat_map(|row| row.filled.iter().map(|(variable, _)| *variable)).collect();
        let left_out = variables.len().saturating_sub(VARIABLES);
        for name in self.sorted(variables).into_iter().take(VARIABLES) {
            let variable = self.texts.get_index_of(name);
            // The value counts, whether rdma-init has filled it in or the user has set it: NCCL gets both.
            let cell = |row: &Row| {
                let mut all = row.filled.iter().chain(&row.set);
                let found = all.find(|(name, _)| Some(*name) == variable);
                found.map_or(Cell::Nothing, |(_, value)| Cell::Value(*value))
            };
            let mut cells = self.rows.iter().map(|(&host, row)| (host, cell(row)));
            properties.extend(self.tally("filled", Some(name), &mut cells, &mut differing));
        }
        Comparison {
            nodes: self.rows.len(),
            agree: !self.rows.is_empty() && properties.iter().all(|property| property.others.is_empty()),
            differing: self.sorted(differing),
            properties,
            failed: self.failed(),
            repeated: self.sorted(self.repeated.iter().copied()),
            contradicted: self.sorted(self.contradicted.iter().copied()),
            variables_left_out: left_out,
        }
    }

    /// Returns the values of one property; `None` if no node has anything to compare.
    fn tally<'a>(
        &'a self,
        property: &'static str,
        variable: Option<&'a str>,
        cells: &mut dyn Iterator<Item = (Text, Cell)>,
        differing: &mut Vec<Text>,
    ) -> Option<Compared<'a>> {
        let mut by_value = Groups::new();
        for (host, cell) in cells {
            match cell {
                Cell::Apart => {}
                Cell::Nothing => by_value.entry(None).or_default().push(host),
                Cell::Value(value) => by_value.entry(Some(value)).or_default().push(host),
            }
        }
        let mut values = self.ranked(by_value);
        let count = |index: usize| values.get(index).map_or(0, |(_, hosts)| hosts.len());
        let (first, second) = (count(0), count(1));
        if first == 0 {
            return None;
        }
        let total: usize = values.iter().map(|(_, hosts)| hosts.len()).sum();
        let majority = (first * 2 >= total && first > second).then(|| values.remove(0));
        if majority.is_some() {
            differing.extend(values.iter().flat_map(|(_, hosts)| hosts));
        }
        let others = values.into_iter();
        Some(Compared {
            property,
            variable,
            majority: majority.map(|(value, hosts)| Majority { value, count: hosts.len() }),
            others: others
                .map(|(value, hosts)| Other { value, count: hosts.len(), nodes: self.sorted(hosts) })
                .collect(),
        })
    }

    fn failed(&self) -> Vec<Failed<'_>> {
        let mut by_id = Groups::new();
        for (&host, row) in &self.rows {
            for &id in &row.failed {
                by_id.entry(Some(id)).or_default().push(host);
            }
        }
        let failed = self.ranked(by_id).into_iter();
        failed
            .map(|(id, hosts)| {
                let nodes = self.sorted(hosts);
                Failed { id: id.unwrap_or_default(), count: nodes.len(), nodes }
            })
            .collect()
    }

    /// Returns the values with their nodes, the largest group first.
    fn ranked(&self, groups: Groups) -> Vec<(Option<&str>, Vec<Text>)> {
        let groups = groups.into_iter();
        let mut ranked: Vec<(Option<&str>, Vec<Text>)> =
            groups.map(|(text, hosts)| (text.map(|text| self.shown(text)), hosts)).collect();
        ranked.sort_by_key(|(text, hosts)| (Reverse(hosts.len()), *text));
        ranked
    }
}

/// The hosts of each value.
type Groups = IndexMap<Option<Text>, Vec<Text>>;

/// Sorts in natural order. Texts that are equal in natural order are sorted bytewise.
fn order(texts: &mut [&str]) {
    texts.sort_by(|a, b| natural(a, b).then(a.cmp(b)));
}

fn failed(report: &Brief) -> impl Iterator<Item = &str> {
    let of = |outcome| report.checks.iter().filter(move |check| check.outcome == outcome);
    let unnamed = !report.passed && of(Outcome::Failed).next().is_none();
    of(Outcome::Failed).map(|check| &*check.id).chain(unnamed.then_some(UNNAMED))
}

/// A value of a node, before its text gets a number.
enum SeenValue {
    Apart,
    Nothing,
    Value(String),
}

impl From<Option<String>> for SeenValue {
    fn from(value: Option<String>) -> SeenValue {
        value.map_or(SeenValue::Nothing, SeenValue::Value)
    }
}

/// Returns the values of [`PROPERTIES`].
fn fixed(report: &Brief) -> [SeenValue; PROPERTIES.len()] {
    // The order in which a node lists its HCAs does not matter.
    let mut hcas: Vec<(String, &Rail)> = report.hcas.iter().map(|hca| (name(hca), hca)).collect();
    hcas.sort_by(|(a, _), (b, _)| natural(a, b).then_with(|| a.cmp(b)));
    let names: Vec<&str> = hcas.iter().map(|(name, _)| name.as_str()).collect();
    let each = |value: fn(&Rail) -> Option<String>| per_hca(&hcas, value);
    let mut distinct: Vec<&str> = hcas.iter().map(|(_, hca)| hca.hca.as_str()).collect();
    distinct.dedup();
    [
        SeenValue::Value(distinct.len().to_string()),
        if names.is_empty() { SeenValue::Nothing } else { SeenValue::Value(condensed(&names)) },
        each(|hca| Some(hca.link_layer.clone())),
        each(|hca| Some(hca.rate.clone())),
        each(|hca| hca.gid_type.clone()),
        each(|hca| hca.gid_index.map(|index| index.to_string())),
        each(|hca| hca.mtu.map(|mtu| mtu.to_string())),
        each(|hca| hca.traffic_class.clone()),
        each(|hca| hca.driver.clone()),
        each(|hca| hca.firmware.clone()),
        report.nccl.clone().into(),
        report.profile.clone().into(),
        report.nvlink.as_ref().map_or(SeenValue::Apart, |nvlink| SeenValue::Value(nvlink.channels.clone())),
        report.nvlink.as_ref().map_or(SeenValue::Apart, |nvlink| nvlink.clique.clone().into()),
        // Not every node has a claim whose driver reports these.
        of_cloud(&report.nvlink_domain),
        of_cloud(&report.placement_group),
    ]
}

/// Returns a text of the cloud's metadata, which may be empty for a node without one.
fn of_cloud(text: &Option<String>) -> SeenValue {
    let text = text.as_ref().filter(|text| !text.trim().is_empty());
    text.map_or(SeenValue::Apart, |text| SeenValue::Value(text.clone()))
}

/// Returns the name of an HCA, with its port unless that is port 1.
fn name(hca: &Rail) -> String {
    if hca.port == 1 { hca.hca.clone() } else { format!("{}:{}", hca.hca, hca.port) }
}

/// Returns a single value if all HCAs of a node have the same one. So a node whose HCAs have other
/// names does not differ in every property. Otherwise, returns which HCAs have which value.
fn per_hca(hcas: &[(String, &Rail)], value: fn(&Rail) -> Option<String>) -> SeenValue {
    let mut groups: Vec<(Option<String>, Vec<&str>)> = Vec::new();
    for (name, hca) in hcas {
        let value = value(hca);
        match groups.iter_mut().find(|(of, _)| *of == value) {
            Some((_, names)) => names.push(name),
            None => groups.push((value, vec![name])),
        }
    }
    if groups.len() <= 1 {
        return groups.pop().map_or(SeenValue::Apart, |(value, _)| value.into());
    }
    let parts: Vec<String> = groups
        .iter()
        .map(|(value, names)| format!("{} on {}", value.as_deref().unwrap_or("none"), condensed(names)))
        .collect();
    SeenValue::Value(parts.join("; "))
}

#[cfg(test)]
mod tests;
