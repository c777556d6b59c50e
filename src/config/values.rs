//! Converts merged values to typed ones. Variables and flags supply text, and a file may supply TOML's own
//! types; both are accepted. An error says what was expected: it is text, because only a person reads it,
//! after the key and its value.

use std::collections::BTreeSet;
use std::path::{Component, PathBuf};
use std::time::Duration;

use figment::value::{Dict, Num, Value};
use indexmap::IndexMap;
use serde::de::DeserializeOwned;

use crate::exit;
use crate::facts::environment::is_variable_name;
use crate::init::{Remap, Rewrite};
use crate::libraries::{self, Wanted};
use crate::plan::ProfileOption;
use crate::state::{Propagate, StateDir};
use crate::sys::signals;

/// Returns the value as the user wrote it, or nearly so.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Char(_, c) => format!("{:?}", c.to_string()),
        Value::Bool(_, b) => b.to_string(),
        Value::Num(_, number) => num(number),
        Value::Empty(..) => "(empty)".to_owned(),
        Value::Array(_, items) => {
            format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        Value::Dict(_, dict) => {
            let pairs: Vec<_> = dict.iter().map(|(k, v)| format!("{k} = {}", shown(v))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
    }
}

fn num(number: &Num) -> String {
    if let Some(unsigned) = number.to_u128() {
        return unsigned.to_string();
    }
    match number.to_i128() {
        Some(signed) => signed.to_string(),
        None => number.to_f64().map_or_else(|| "a number".to_owned(), |f| f.to_string()),
    }
}

/// Returns the text, or a plain value as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(_, text) => Some(text.clone()),
        Value::Char(_, c) => Some(c.to_string()),
        Value::Bool(_, b) => Some(b.to_string()),
        Value::Num(_, number) => Some(num(number)),
        _ => None,
    }
}

pub(super) fn profile(value: &Value) -> Result<ProfileOption, String> {
    match text(value).as_deref() {
        Some("auto") => Ok(ProfileOption::Auto),
        Some("none") => Ok(ProfileOption::None),
        Some(name) if !name.is_empty() => Ok(ProfileOption::Named(name.to_owned())),
        _ => Err("expected auto, none or the name of a profile".to_owned()),
    }
}

pub(super) fn path(value: &Value) -> Result<PathBuf, String> {
    match value.as_str() {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err("expected a path".to_owned()),
    }
}

/// Parses an absolute path without `..` of a file that node_exporter reads.
pub(super) fn metrics_file(value: &Value) -> Result<PathBuf, String> {
    let is_plain = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    let sound = |path: &PathBuf| {
        path.is_absolute()
            && path.components().all(is_plain)
            && path.extension().is_some_and(|extension| extension == "prom")
    };
    let path = path(value).ok().filter(sound);
    path.ok_or_else(|| {
        "expected an absolute path without \"..\" that ends in .prom: node_exporter reads no other file"
            .to_owned()
    })
}

/// Parses an absolute path without `..`, or an empty text, which means nowhere.
pub(super) fn place(value: &Value) -> Result<StateDir, String> {
    if value.as_str() == Some("") {
        return Ok(StateDir::Nowhere);
    }
    let is_plain = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    let sound = |path: &PathBuf| path.is_absolute() && path.components().all(is_plain);
    let path = path(value).ok().filter(sound).map(StateDir::At);
    path.ok_or_else(|| {
        "expected an absolute path without \"..\", or an empty text to keep no state".to_owned()
    })
}

/// Parses one of these words, which are the serde names of the type.
pub(super) fn word<T: DeserializeOwned>(
    words: &'static [&'static str],
) -> impl FnOnce(&Value) -> Result<T, String> {
    move |value| value.deserialize().map_err(|_| format!("expected one of {}", words.join(", ")))
}

/// Returns the reader of a key that has no default.
pub(super) fn optional<T>(
    read: impl FnOnce(&Value) -> Result<T, String>,
) -> impl FnOnce(&Value) -> Result<Option<T>, String> {
    move |value| read(value).map(Some)
}

pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    match (value, text(value).as_deref()) {
        (Value::Bool(_, b), _) => Ok(*b),
        (Value::String(..) | Value::Char(..), Some("true" | "1" | "yes" | "on")) => Ok(true),
        (Value::String(..) | Value::Char(..), Some("false" | "0" | "no" | "off")) => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    text(value)
        .and_then(|text| humantime::parse_duration(&text).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "expected a duration above 0, such as 500ms, 25s or 2m".to_owned())
}

/// Parses an interval for repeated checks. It must not keep a processor busy, and a clock must be able to
/// represent it.
pub(super) fn interval(value: &Value) -> Result<Duration, String> {
    const ALLOWED: std::ops::RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(86_400);
    duration(value)
        .ok()
        .filter(|interval| ALLOWED.contains(interval))
        .ok_or_else(|| "expected a duration between 100ms and 1day, such as 10s".to_owned())
}

pub(super) fn number(value: &Value) -> Result<u32, String> {
    text(value).and_then(|text| text.parse().ok()).ok_or_else(|| "expected a number".to_owned())
}

/// Parses a number above 0, with or without a fraction.
pub(super) fn amount(value: &Value) -> Result<f64, String> {
    text(value)
        .and_then(|text| text.parse().ok())
        .filter(|number: &f64| number.is_finite() && *number > 0.0)
        .ok_or_else(|| "expected a number above 0".to_owned())
}

/// Parses text that is not empty.
pub(super) fn words(value: &Value) -> Result<String, String> {
    text(value).filter(|text| !text.is_empty()).ok_or_else(|| "expected a text".to_owned())
}

pub(super) fn exit_code(value: &Value) -> Result<i32, String> {
    text(value)
        .and_then(|text| text.parse().ok())
        .filter(|code| (1..=255).contains(code))
        .ok_or_else(|| "expected a number from 1 to 255".to_owned())
}

/// A code that means nothing else: see docs/configuration.md.
pub(super) fn free_exit_code(value: &Value) -> Result<i32, String> {
    let is_free = |code: &i32| (2..exit::FAILED).contains(code) && *code != exit::REFUSED;
    text(value).and_then(|text| text.parse().ok()).filter(is_free).ok_or_else(|| {
        format!(
            "expected a number from 2 to {} except {}: rdma-init, the shell and signals use the other exit codes",
            exit::FAILED - 1,
            exit::REFUSED
        )
    })
}

/// A signal's name or number.
pub(super) fn signal(value: &Value) -> Result<i32, String> {
    text(value)
        .and_then(|text| signals::parse(&text))
        .ok_or_else(|| "expected a signal's name or number, such as TERM, SIGTERM or 15".to_owned())
}

/// Parses one or several `FROM:TO`.
pub(super) fn rewrite(value: &Value) -> Result<Rewrite, String> {
    Rewrite::new(&items(value).ok_or("expected FROM:TO, such as TERM:INT or HUP:0")?)
}

/// Parses one or several `N` or `N:M`.
pub(super) fn remap(value: &Value) -> Result<Remap, String> {
    Remap::new(&items(value).ok_or("expected N or N:M, such as 143 or 143:1")?)
}

/// Returns the entries of a list, or of one text with commas; `None` for anything else.
fn items(value: &Value) -> Option<Vec<String>> {
    let texts = match value {
        Value::Array(_, items) => items.iter().map(text).collect::<Option<Vec<_>>>()?,
        _ => vec![text(value)?],
    };
    let items = texts.iter().flat_map(|text| text.split([',', ' ', '\n']));
    Some(items.filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

/// Parses a command with its arguments: a list, or one text with spaces between them. No shell parses it.
pub(super) fn command(value: &Value) -> Result<Vec<String>, String> {
    let words: Option<Vec<String>> = match value {
        Value::Array(_, items) => items.iter().map(text).collect(),
        _ => text(value).map(|text| text.split_whitespace().map(str::to_owned).collect()),
    };
    let is_command = |words: &Vec<String>| !words.is_empty() && !words.iter().any(|word| word.contains('\0'));
    words
        .filter(is_command)
        .ok_or_else(|| "expected a command: a list, or words with spaces between them".to_owned())
}

/// Parses names in a list, or in one text with commas. Reports an entry that is not a name by its number,
/// because it may be a secret.
pub(super) fn names(value: &Value) -> Result<BTreeSet<String>, String> {
    let names = items(value).ok_or("expected names of variables")?;
    let Some(index) = names.iter().position(|name| !is_variable_name(name)) else {
        return Ok(names.into_iter().collect());
    };
    let pattern =
        if names[index].contains('*') { " (* stands for no names here: write each name)" } else { "" };
    Err(format!(
        "expected names of variables, with commas between them, and number {} is not one{pattern}",
        index + 1
    ))
}

/// Parses `auto` or a list of libraries; NCCL is always included.
pub(super) fn libraries(value: &Value) -> Result<Wanted, String> {
    let names: Vec<&str> =
        ["nccl"].into_iter().chain(libraries::ALL.iter().map(|library| library.name)).collect();
    let expected = || format!("expected auto, or one or more of {}", names.join(", "));
    let items = items(value).filter(|items| !items.is_empty()).ok_or_else(expected)?;
    if items == ["auto"] {
        return Ok(Wanted::Found);
    }
    match items.iter().find(|item| !names.contains(&item.as_str())) {
        Some(unknown) => Err(format!("there is no library {unknown:?}; {}", expected())),
        None => Ok(Wanted::Named(items.into_iter().filter(|name| name != "nccl").collect())),
    }
}

/// Parses some of these words: a list, or one text with commas.
pub(super) fn propagate(value: &Value) -> Result<Propagate, String> {
    let words = items(value).unwrap_or_default();
    let has = |word: &str| words.iter().any(|known| known == word);
    let found = Propagate { profile: has("profile"), ssh: has("ssh"), environment: has("environment") };
    let is_known = |word: &String| ["profile", "ssh", "environment"].contains(&word.as_str());
    let is_list = matches!(value, Value::Array(..)) || text(value).is_some();
    (is_list && words.iter().all(is_known))
        .then_some(found)
        .ok_or_else(|| "expected one or more of profile, ssh, environment".to_owned())
}

const ASSIGNMENT: &str = "expected VARIABLE=VALUE, with a name of letters, digits and _";
const ASSIGNMENTS: &str = "expected a table of variables, or VARIABLE=VALUE as a list or on lines";

/// Parses a table, or a list or lines of `VARIABLE=VALUE`. Reports entries with another form by their
/// numbers, because they may contain a part of a secret.
pub(super) fn assignments(value: &Value) -> Result<IndexMap<String, String>, String> {
    if let Value::Dict(_, table) = value {
        let pairs = table.iter().map(|(name, value)| Ok((name.clone(), assigned(name, value)?)));
        return pairs.collect();
    }
    let (what, texts) = match value {
        Value::Array(_, items) => ("number", items.iter().map(text).collect::<Option<Vec<_>>>()),
        Value::String(_, text) => ("line", Some(text.lines().map(str::to_owned).collect())),
        _ => ("line", None),
    };
    let texts = texts.ok_or(ASSIGNMENTS)?;
    let pairs = texts.iter().enumerate().map(|(index, text)| {
        let (name, value) = assignment(text).ok_or_else(|| format!("{what} {}: {ASSIGNMENT}", index + 1))?;
        Ok((name.to_owned(), assigned(name, &value.into())?))
    });
    pairs.collect()
}

/// Returns a variable's value if its name and value are valid.
pub(super) fn assigned(name: &str, value: &Value) -> Result<String, String> {
    if !is_variable_name(name) {
        return Err(format!("{name:?} is not the name of a variable"));
    }
    let text = text(value).ok_or_else(|| format!("the value of {name} is neither a text nor a number"))?;
    match text.contains('\0') {
        true => Err(format!("the value of {name} has a NUL character in it")),
        false => Ok(text),
    }
}

/// Returns assignments as a table, so that layers are merged variable by variable; `None` if one of the texts
/// is not an assignment.
pub(super) fn table<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Value> {
    let pairs: Option<Dict> =
        texts.map(|text| assignment(text).map(|(name, value)| (name.to_owned(), value.into()))).collect();
    pairs.map(Value::from)
}

/// Parses `VARIABLE=VALUE`.
fn assignment(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(name, _)| is_variable_name(name))
}
