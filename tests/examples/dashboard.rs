//! Checks the dashboard against those parts of Grafana's schema on which its import depends. prometheus.rs asks a
//! Prometheus for what its panels show.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::repository;

/// The panels of Grafana that the dashboard uses.
const TYPES: &[&str] = &["stat", "state-timeline", "timeseries"];

/// The width of Grafana's grid.
const COLUMNS: u64 = 24;

/// Grafana sets it itself.
const RATE_INTERVAL: &str = "__rate_interval";

fn text() -> String {
    fs::read_to_string(repository("examples/prometheus/dashboard.json")).unwrap()
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().unwrap_or_else(|| panic!("{name} is no list: {of}"))
}

#[track_caller]
fn word<'a>(of: &'a Value, name: &str) -> &'a str {
    let word = of[name].as_str().unwrap_or_else(|| panic!("{name} is no text: {of}"));
    assert!(!word.trim().is_empty(), "{name} is empty: {of}");
    word
}

/// Returns the query of each panel and of each variable, as Grafana sends it if everything is selected.
pub fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text()).unwrap();
    let targets = list(&dashboard, "panels").iter().flat_map(|panel| list(panel, "targets"));
    let sent = |query: &str| query.replace("$host", ".*").replace(&format!("${RATE_INTERVAL}"), "1m");
    let of_panels: Vec<String> = targets.map(|target| sent(word(target, "expr"))).collect();
    let of_variables = list(&dashboard["templating"], "list").iter().filter_map(|variable| {
        let values = variable["query"]["query"].as_str()?.strip_prefix("label_values(")?;
        let (metric, label) = values.strip_suffix(')')?.split_once(", ")?;
        Some(format!("count by ({label}) ({metric}{{{label}!=\"\"}})"))
    });
    let queries: Vec<String> = of_panels.into_iter().chain(of_variables).collect();
    assert!(queries.len() > 15, "{queries:?}");
    queries
}

#[test]
fn the_dashboard_is_as_grafana_wants_it() {
    let dashboard: Value = serde_json::from_str(&text()).unwrap();
    // An older version is migrated, and a number of another installation is refused.
    assert!(dashboard["schemaVersion"].as_u64() >= Some(41));
    assert_eq!(dashboard["id"], Value::Null);
    word(&dashboard, "title");
    // The limit of Grafana.
    assert!(word(&dashboard, "uid").len() <= 40);
    for end in ["from", "to"] {
        word(&dashboard["time"], end);
    }

    let variables = list(&dashboard["templating"], "list");
    let types: Vec<_> =
        variables.iter().map(|variable| (word(variable, "name"), word(variable, "type"))).collect();
    assert_eq!(types, [("datasource", "datasource"), ("host", "query")]);
    assert_eq!(word(&variables[0], "query"), "prometheus");
    is_of_the_variable(&variables[1]);
    assert_eq!(used(), BTreeSet::from(["datasource", "host", RATE_INTERVAL].map(str::to_owned)));

    let panels = list(&dashboard, "panels");
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    let titles: BTreeSet<&str> = panels.iter().map(|panel| word(panel, "title")).collect();
    assert_eq!(titles.len(), panels.len(), "two panels have the same title");
    for panel in panels {
        assert!(TYPES.contains(&word(panel, "type")), "{panel}");
        is_of_the_variable(panel);
        assert!(panel["options"].is_object() && panel["fieldConfig"]["defaults"].is_object(), "{panel}");
        assert!(panel["fieldConfig"]["overrides"].is_array(), "{panel}");
        let targets = list(panel, "targets");
        let letters: BTreeSet<&str> = targets.iter().map(|target| word(target, "refId")).collect();
        assert!(!targets.is_empty() && letters.len() == targets.len(), "{panel}");
        for target in targets {
            is_of_the_variable(target);
            word(target, "expr");
            word(target, "legendFormat");
        }
    }
    for (index, panel) in panels.iter().enumerate() {
        let [x, y, width, height] = place(panel);
        assert!(width > 0 && height > 0 && x + width <= COLUMNS, "{panel}");
        let covered = panels[..index].iter().find(|other| {
            let [left, top, wide, high] = place(other);
            x < left + wide && left < x + width && y < top + high && top < y + height
        });
        assert!(covered.is_none(), "{} covers {}", panel["title"], covered.unwrap()["title"]);
    }
}

#[track_caller]
fn is_of_the_variable(of: &Value) {
    let wanted = serde_json::json!({"type": "prometheus", "uid": "${datasource}"});
    assert_eq!(of["datasource"], wanted, "{of}");
}

fn place(panel: &Value) -> [u64; 4] {
    ["x", "y", "w", "h"]
        .map(|side| panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{side}: {panel}")))
}

/// Returns the names of the variables that the dashboard uses.
fn used() -> BTreeSet<String> {
    let text = text();
    // Grafana's own value for everything.
    let text = text.replace("$__all", "");
    let names = text.split('$').skip(1).map(|rest| {
        let rest = rest.trim_start_matches('{');
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    });
    names.collect()
}
