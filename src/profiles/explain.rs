//! Explains what is wrong with the file of a profile: the file, the line, the key, and what to write.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::check::{Step, Wrong};
use super::format::reading::DOUBLE_BRACKETS;
use crate::text::visible;

/// Returns the error for a value in the text of a file: `FILE:LINE: key "KEY": MESSAGE`.
pub(super) fn located(file: &str, text: &str, wrong: &Wrong) -> String {
    let start = Layout::of(text).find(&wrong.place).map(|entry| entry.name.start);
    let key = wrong.place.iter().find_map(|step| match step {
        Step::Key(key) => Some(key.as_str()),
        Step::Item(_) => None,
    });
    sentence(file, start.map(|start| line_of(text, start)), key, &wrong.why)
}

/// Explains a parser's error: `FILE:LINE: key "KEY": MESSAGE`. An error of the crate `toml` has no kind, so its text is
/// all that tells what is wrong. If a later release words it differently, the message is less plain, and the tests
/// below fail; nothing else depends on it.
pub(super) fn of_parser(file: &str, text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim().replace('\n', " ");
    // The whole file has an empty position, and no key.
    let Some(span) = error.span().filter(|span| span.end > 0) else {
        return sentence(file, Some(1), None, &in_words(&message, None));
    };
    let layout = Layout::of(text);
    let written = text.get(span.clone()).unwrap_or_default().trim();
    let line = Some(line_of(text, span.start));
    if message == "duplicate key" {
        return sentence(
            file,
            line,
            Some(unquoted(written)),
            "it is here for the second time: keep one of the two",
        );
    }
    if let Some(number) = layout.at(&span) {
        let entry = &layout.entries[number];
        let why = match message.strip_prefix("invalid type: map, ") {
            Some(_) if entry.is_of_dotted_key => {
                format!("a name with dots needs quotes: write {:?}", layout.dotted_name(number))
            }
            _ if message.starts_with("string values must be quoted") => match written {
                "" => NO_VALUE.to_owned(),
                _ => format!("{written} must be in quotes"),
            },
            _ => in_words(&message, Some(&layout.path(number))),
        };
        return sentence(file, line, layout.key(number), &why);
    }
    // The parser has given up this line, so the key is what precedes the fault.
    let before = text.get(..span.start).unwrap_or(text);
    let before = before.rsplit('\n').next().unwrap_or(before);
    let key = unquoted(before.split(['=', ':']).next().unwrap_or(before).trim().trim_start_matches('['));
    let why = match message.starts_with("key with no value") {
        true => NO_VALUE.to_owned(),
        false => in_words(&message, None),
    };
    sentence(file, line, Some(key).filter(|key| !key.is_empty()), &why)
}

const NO_VALUE: &str = "it has no value: write \"=\" and the value behind the key";

fn sentence(file: &str, line: Option<usize>, key: Option<&str>, why: &str) -> String {
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let key = key.map(|key| format!("key {key:?}: ")).unwrap_or_default();
    visible(&format!("{file}{line}: {key}{why}"))
}

/// Returns the line number, counted from 1.
fn line_of(text: &str, start: usize) -> usize {
    text.get(..start).unwrap_or(text).matches('\n').count() + 1
}

fn unquoted(key: &str) -> &str {
    key.trim().trim_matches(['"', '\''])
}

/// The keys and the items of lists of a file, each after the table or list that contains it.
struct Layout {
    entries: Vec<Entry>,
}

struct Entry {
    /// The number of the entry that contains this one.
    within: Option<usize>,
    step: Step,
    /// The position of the key; that of the value for an item of a list.
    name: Range<usize>,
    /// The position of the value; that of the header for a table with a header.
    value: Range<usize>,
    /// Whether this is a table only because a key has a dot: `a.b = 1`.
    is_of_dotted_key: bool,
}

impl Layout {
    /// Reads as much of the text as can be read.
    fn of(text: &str) -> Layout {
        let (root, _) = DeTable::parse_recoverable(text);
        let root = DeValue::Table(root.into_inner());
        let mut entries = Vec::new();
        let mut rest = vec![(None, &root)];
        while let Some((within, value)) = rest.pop() {
            let mut add = |step, name: Range<usize>, value: Range<usize>, is_table| {
                let is_of_dotted_key = is_table && name == value && matches!(step, Step::Key(_));
                entries.push(Entry { within, step, name, value, is_of_dotted_key });
                Some(entries.len() - 1)
            };
            match value {
                DeValue::Table(table) => {
                    for (key, value) in table {
                        let step = Step::Key(key.get_ref().to_string());
                        let number = add(step, key.span(), value.span(), value.get_ref().is_table());
                        rest.push((number, value.get_ref()));
                    }
                }
                DeValue::Array(items) => {
                    for (number, item) in items.iter().enumerate() {
                        let number = add(Step::Item(number), item.span(), item.span(), false);
                        rest.push((number, item.get_ref()));
                    }
                }
                _ => {}
            }
        }
        Layout { entries }
    }

    /// Returns the entry with this place, or the deepest one above it in the text.
    fn find(&self, place: &[Step]) -> Option<&Entry> {
        let mut found = None;
        for step in place.iter().rev() {
            let is_it = |entry: &Entry| entry.within == found && entry.step == *step;
            match self.entries.iter().position(is_it) {
                Some(number) => found = Some(number),
                None => break,
            }
        }
        found.map(|number| &self.entries[number])
    }

    /// Returns the number of the innermost entry at a position.
    fn at(&self, position: &Range<usize>) -> Option<usize> {
        let encloses = |range: &&Range<usize>| range.start <= position.start && position.end <= range.end;
        let length =
            |entry: &Entry| [&entry.name, &entry.value].into_iter().filter(encloses).map(Range::len).min();
        let lengths = self.entries.iter().enumerate().rev();
        let lengths = lengths.filter_map(|(number, entry)| Some((number, length(entry)?)));
        lengths.min_by_key(|(_, length)| *length).map(|(number, _)| number)
    }

    /// Returns the keys from an entry up to the whole file.
    fn keys(&self, number: usize) -> impl Iterator<Item = &str> {
        let above = |entry: &&Entry| entry.within.map(|number| &self.entries[number]);
        std::iter::successors(self.entries.get(number), above).filter_map(|entry| match &entry.step {
            Step::Key(key) => Some(key.as_str()),
            Step::Item(_) => None,
        })
    }

    fn key(&self, number: usize) -> Option<&str> {
        self.keys(number).next()
    }

    /// Returns the keys down to an entry as in the header of a table: `constraints.gpus`.
    fn path(&self, number: usize) -> String {
        let mut keys: Vec<&str> = self.keys(number).collect();
        keys.reverse();
        keys.join(".")
    }

    /// Returns the dotted key that begins with this entry, down to its value.
    fn dotted_name(&self, number: usize) -> String {
        let mut name = self.key(number).unwrap_or_default().to_owned();
        let mut last = number;
        while let Some(next) = self.entries.iter().position(|entry| entry.within == Some(last)) {
            name.extend([".", self.key(next).unwrap_or_default()]);
            last = next;
        }
        name
    }
}

/// Returns the parser's message in the words of this program; the message itself if it is about the syntax. `path`
/// contains the keys down to the value.
fn in_words(message: &str, path: Option<&str>) -> String {
    if message.ends_with(DOUBLE_BRACKETS)
        && let Some(path) = path
    {
        return format!("there may be several such tables, so write [[{path}]], with double brackets");
    }
    for start in ["invalid type: ", "invalid value: "] {
        if let Some((found, wanted)) =
            message.strip_prefix(start).and_then(|rest| rest.split_once(", expected "))
        {
            let found = found_value(found);
            return format!("{found} must be {}", wanted_value(wanted, found));
        }
    }
    if let Some((_, known)) = unknown(message, "unknown field `") {
        return format!("there is no such key here; there are {known}");
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
fn wanted_value(wanted: &str, found: &str) -> String {
    let words = match wanted {
        "i32" | "i64" => "a whole number",
        "u32" | "u16" | "u64" => "a whole number, 0 or more",
        "a boolean" => "true or false, without quotes",
        "a string" => "a text in quotes",
        "a sequence" if found == "a table" => "a list",
        "a sequence" => return format!("a list: [{found}]"),
        "a map" => "a table",
        "newtype variant" => "a table, such as { interface = \"hpn0\" }",
        "unit variant" => "only this word, in quotes",
        _ => wanted,
    };
    words.to_owned()
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
            ("unset = \"NCCL_IB_TC\"", "4: key \"unset\": \"NCCL_IB_TC\" must be a list: [\"NCCL_IB_TC\"]"),
            ("[constraints]\ncards = [-1]", "5: key \"cards\": -1 must be a whole number, 0 or more"),
            (
                "[constraints]\nother-types = 1",
                "5: key \"other-types\": 1 must be true or false, without quotes",
            ),
            ("constraints = 1", "4: key \"constraints\": 1 must be a table"),
            ("variables = [1]", "4: key \"variables\": a list must be a table"),
            (
                "default-route-hca = \"skip\"",
                "4: key \"default-route-hca\": `skip` must be one of `use`, `avoid`, `no-rail`",
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
                "4: key \"gpus\": there may be several such tables, so write [[constraints.gpus]], with double brackets",
            ),
            (
                "[constraints]\ngpus = { count = 8 }",
                "5: key \"gpus\": there may be several such tables, so write [[constraints.gpus]], with double brackets",
            ),
            ("[constraints]\ncards = 8", "5: key \"cards\": 8 must be a list: [8]"),
            (
                "[constraints.nics]\necs.foo.48xlarge = 3",
                "5: key \"ecs\": a name with dots needs quotes: write \"ecs.foo.48xlarge\"",
            ),
            (
                "[constraints]\nnics.ecs.foo = 3",
                "5: key \"ecs\": a name with dots needs quotes: write \"ecs.foo\"",
            ),
            ("title = \"u\"", "4: key \"title\": it is here for the second time: keep one of the two"),
            (
                "[variables]\nTZ = \"A\"\n[constraints]\n[variables]",
                "7: key \"variables\": it is here for the second time: keep one of the two",
            ),
            (
                "variables = { TZ = \"A\", \"TZ\" = \"B\" }",
                "4: key \"TZ\": it is here for the second time: keep one of the two",
            ),
            (
                "[variables]\nNCCL_IB_TC\nTZ = \"A\"",
                "5: key \"NCCL_IB_TC\": it has no value: write \"=\" and the value behind the key",
            ),
            (
                "[variables]\nNCCL_IB_TC =\nTZ = \"A\"",
                "5: key \"NCCL_IB_TC\": it has no value: write \"=\" and the value behind the key",
            ),
            ("[variables]\nTZ = UTC", "5: key \"TZ\": UTC must be in quotes"),
            (
                "[[auto]]\nno-hca = true\nnot = { environment = \"B\" }",
                "6: key \"not\": a table must be a list of tables, such as [{ environment = \"OUR_LAB\" }]",
            ),
            (
                "[[only]]\nif = [{ file = \"/x\" }]\nvariables = { TZ = \"A\" }",
                "5: key \"if\": a list must be a table, such as { environment = \"OUR_CLUSTER\" }",
            ),
            (
                "[[auto]]\nhca = [\"mlx5*\", \"mlx5_*\"]",
                "5: key \"hca\": a list must be a table, such as { driver = \"mlx5*\", name = \"mlx5_*\" }",
            ),
            (
                "auto = [[]]",
                "4: key \"auto\": a list must be a table, such as { environment = \"OUR_CLUSTER\" }",
            ),
            ("constraints = [[8]]", "4: key \"constraints\": a list must be a table"),
            ("unset = [\n\"TZ\",\n3 ]", "6: key \"unset\": 3 must be a text in quotes"),
        ] {
            assert_eq!(error(text), format!("site.toml:{wanted}"), "{text}");
        }
        for (text, start) in [
            (
                "colour = 1",
                "site.toml:4: key \"colour\": there is no such key here; there are `name`, `title`, ",
            ),
            ("[[auto]]\nhca = { driver = \"a\" }", "site.toml:5: key \"hca\": the key `name` is missing"),
            ("unset = [", "site.toml:4: key \"unset\": "),
            ("hint = \"x", "site.toml:4: key \"hint\": "),
            ("unset: 3", "site.toml:4: key \"unset\": "),
            ("\"a\\u001b\" = 1", "site.toml:4: key \"a\\u{1b}\": "),
            ("fabric = \"\\u001b\"", "site.toml:4: key \"fabric\": `\u{fffd}` must be one of "),
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
