//! Explains what is wrong with the file of a profile: the file, the line, the key, and what to write.

use toml::de::{DeTable, DeValue};

use super::check::{Step, Wrong};
use super::format::DOUBLE_BRACKETS;

/// Returns the error for a value in the text of a file: `FILE:LINE: key "KEY": MESSAGE`.
pub(super) fn located(file: &str, text: &str, wrong: &Wrong) -> String {
    let line = start_of(text, &wrong.place).map(|start| format!(":{}", line_of(text, start)));
    let key = wrong.place.iter().find_map(|step| match step {
        Step::Key(key) => Some(key),
        Step::Item(_) => None,
    });
    let key = key.map(|key| format!("key {key:?}: ")).unwrap_or_default();
    format!("{file}{}: {key}{}", line.unwrap_or_default(), wrong.why)
}

/// Returns the position of the value, or of the deepest table above it in the text.
fn start_of(text: &str, place: &[Step]) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut value = DeValue::Table(root.into_inner());
    let mut start = None;
    for step in place.iter().rev() {
        let inner = match (step, value) {
            (Step::Key(key), DeValue::Table(table)) => {
                let found = table.into_iter().find(|(name, _)| name.get_ref() == key);
                found.map(|(name, inner)| (name.span().start, inner))
            }
            (Step::Item(number), DeValue::Array(items)) => {
                items.into_iter().nth(*number).map(|inner| (inner.span().start, inner))
            }
            _ => None,
        };
        let Some((at, inner)) = inner else { break };
        start = Some(at);
        value = inner.into_inner();
    }
    start
}

/// Returns the line number, counted from 1.
fn line_of(text: &str, start: usize) -> usize {
    text.get(..start).unwrap_or(text).matches('\n').count() + 1
}

/// Formats a parser's error: `FILE:LINE: key "KEY": MESSAGE`. An error of the crate `toml` has no kind, so its text is all
/// that tells what is wrong. If a later release words it differently, the message is less plain, and the tests below
/// fail; nothing else depends on it.
pub(super) fn of_parser(file: &str, text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim().replace('\n', " ");
    let Some(span) = error.span() else { return format!("{file}: {}", in_words(&message, None)) };
    let number = line_of(text, span.start);
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let before = text.get(..span.start).unwrap_or(text);
    let before = before.rsplit('\n').next().unwrap_or(before);
    // If a value is wrong, the error points behind the key, or at the table's header, and its message does not name
    // the key.
    let key = match before.split_once('=') {
        Some((key, _)) => Some(key.trim()),
        None => header(line).filter(|_| !message.starts_with("unknown field")),
    };
    let message = in_words(&message, key);
    match key {
        Some(key) => format!("{file}:{number}: key {key:?}: {message}"),
        None => format!("{file}:{number}: {message}"),
    }
}

/// Returns the last key in the header of a table, such as `variables` in `[only.variables]`.
fn header(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix('[')?.trim_start_matches('[');
    let name = name.split(']').next()?.rsplit('.').next()?.trim();
    (!name.is_empty()).then_some(name)
}

/// Returns the parser's message in the words of this program; the message itself if it is about the syntax.
fn in_words(message: &str, key: Option<&str>) -> String {
    if message.ends_with(DOUBLE_BRACKETS)
        && let Some(key) = key
    {
        return format!("there may be several such tables, so write [[{key}]], with double brackets");
    }
    for start in ["invalid type: ", "invalid value: "] {
        if let Some((found, wanted)) =
            message.strip_prefix(start).and_then(|rest| rest.split_once(", expected "))
        {
            return format!("{} must be {}", found_value(found), wanted_value(wanted));
        }
    }
    if let Some((name, known)) = unknown(message, "unknown field `") {
        return format!("there is no key `{name}` here; there are {known}");
    }
    if let Some((name, known)) = unknown(message, "unknown variant `") {
        return format!("`{name}` must be one of {known}");
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("the key {name} is missing");
    }
    message.replace("wanted string or table", "it must be a text in quotes, or a table")
}

/// Returns the unknown name of such a message, and the known ones.
fn unknown<'m>(message: &'m str, start: &str) -> Option<(&'m str, &'m str)> {
    let (name, known) = message.strip_prefix(start)?.split_once("`, expected ")?;
    Some((name, known.strip_prefix("one of ").unwrap_or(known)))
}

/// Returns what the file contains, without the parser's name for its type.
fn found_value(found: &str) -> &str {
    match found {
        "map" => "a table",
        "sequence" => "a list",
        "unit variant" => "this word alone",
        _ => ["string ", "integer ", "boolean ", "floating point "]
            .iter()
            .find_map(|kind| found.strip_prefix(kind))
            .unwrap_or(found)
            .trim_matches('`'),
    }
}

/// Returns what the parser expects, without the names of this program's types.
fn wanted_value(wanted: &str) -> &str {
    match wanted {
        "i32" | "i64" => "a whole number",
        "u32" | "u16" | "u64" => "a whole number, 0 or more",
        "a boolean" => "true or false, without quotes",
        "a string" => "a text in quotes",
        "a sequence" => "a list, such as [\"eth0\"]",
        "a map" => "a table",
        "newtype variant" => "a table, such as { interface = \"hpn0\" }",
        "unit variant" => "only this word, in quotes",
        _ if wanted.starts_with("struct ") => "a table",
        _ => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::Profile;

    const HEAD: &str = "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n";

    fn error(text: &str) -> String {
        let text = format!("{HEAD}{text}");
        of_parser("site.toml", &text, &toml::from_str::<Profile>(&text).unwrap_err())
    }

    #[test]
    fn messages_name_the_key_and_no_type_of_the_parser() {
        for (text, wanted) in [
            ("priority = \"high\"", "4: key \"priority\": \"high\" must be a whole number"),
            ("priority = 1.5", "4: key \"priority\": 1.5 must be a whole number"),
            ("extends = 1", "4: key \"extends\": 1 must be a text in quotes"),
            ("unset = \"NCCL_IB_TC\"", "4: key \"unset\": \"NCCL_IB_TC\" must be a list, such as [\"eth0\"]"),
            ("[constraints]\ncards = [-1]", "5: key \"cards\": -1 must be a whole number, 0 or more"),
            (
                "[constraints]\nother-types = 1",
                "5: key \"other-types\": 1 must be true or false, without quotes",
            ),
            ("constraints = 1", "4: key \"constraints\": 1 must be a table"),
            ("variables = [1]", "4: key \"variables\": a list must be a table"),
            (
                "default-route-hca = \"skip\"",
                "4: key \"default-route-hca\": `skip` must be one of `use` or `avoid`",
            ),
            (
                "[variables]\nNCCL_IB_TC = 106",
                "5: key \"NCCL_IB_TC\": 106 must be a text in quotes, such as \"106\"",
            ),
            (
                "[only]\nnccl-min = \"2.27\"",
                "4: key \"only\": there may be several such tables, so write [[only]], with double brackets",
            ),
            (
                "auto = { hca-name = \"a\" }",
                "4: key \"auto\": there may be several such tables, so write [[auto]], with double brackets",
            ),
            (
                "[constraints.gpus]\ncount = 8",
                "4: key \"gpus\": there may be several such tables, so write [[gpus]], with double brackets",
            ),
        ] {
            assert_eq!(error(text), format!("site.toml:{wanted}"), "{text}");
        }
        for (text, start) in [
            ("colour = 1", "site.toml:4: there is no key `colour` here; there are `name`, `title`, "),
            ("fabric = \"verb\"", "site.toml:4: key \"fabric\": `verb` must be one of `verbs`, "),
            ("[[only]]\nif = { }", "site.toml:4: key \"only\": the key `variables` is missing"),
            ("[variables", "site.toml:4: key \"variables\": "),
        ] {
            assert!(error(text).starts_with(start), "{}", error(text));
        }
        for text in ["fabric = 1", "fabric = \"interface\"", "hints = 3", "[[auto]]\nhca = \"x\"", "name"] {
            let said = error(text);
            for jargon in ["i32", "struct", "variant", "invalid type", "sequence", "unit", "a map", "field"] {
                assert!(!said.contains(jargon), "{said}");
            }
        }
    }
}
