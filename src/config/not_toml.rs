//! Explains what is wrong with a file that is not TOML.

use super::keys;

/// Returns the line, the parser's message, and, if a text has no quotes, the corrected line.
pub(super) fn explain(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    let number = text.get(..start).unwrap_or_default().matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default();
    let why = match (quoted(line), line.split_once('=')) {
        (Some(right), _) => format!("a text needs quotes, as in {right}"),
        (None, Some((key, ""))) => format!("{} has no value", key.trim()),
        (None, _) => error.message().trim().replace('\n', ", "),
    };
    format!("line {}: {why}", number + 1)
}

/// Returns `profile = auto` as `profile = "auto"`; `None` if something else is wrong. A line that does not
/// set a key, such as a variable to set, may contain a secret.
fn quoted(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let value = value.split('#').next()?.trim();
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_word = |c: char| c.is_alphanumeric() || "-_./:+,=".contains(c);
    let is_text = value.chars().all(is_word) && value.contains(char::is_alphabetic);
    let key = key.trim();
    let shown = if keys::find(key).is_some_and(|key| !key.may_hold_secrets) { value } else { "..." };
    (is_text && !matches!(value, "true" | "false") && key.chars().all(is_key))
        .then(|| format!("{key} = \"{shown}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(text: &str) -> String {
        explain(text, &toml::from_str::<toml::Table>(text).unwrap_err())
    }

    #[test]
    fn a_text_without_quotes_is_shown_with_them() {
        for value in ["auto", "infiniband", "nccl", "/etc/profiles", "10s", "TERM:INT"] {
            let said = explained(&format!("memlock = \"warn\"\nprofile = {value} # ours\n"));
            assert_eq!(said, format!("line 2: a text needs quotes, as in profile = \"{value}\""));
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        for key in ["T_KEY", "set", "tokem"] {
            let said = explained(&format!("{key} = hunter2\n"));
            assert_eq!(said, format!("line 1: a text needs quotes, as in {key} = \"...\""));
        }
    }

    #[test]
    fn a_value_that_was_forgotten_is_said_to_be_missing() {
        assert_eq!(explained("memlock =\n"), "line 1: memlock has no value");
    }

    #[test]
    fn anything_else_is_said_by_the_parser() {
        for text in ["profile\n", "[set\n", "keep = [\"a\" \"b\"]\n", "a = 1\na = 2\n", "a = true x\n"] {
            let said = explained(text);
            assert!(said.starts_with("line ") && !said.contains("quotes, as in"), "{text}: {said}");
        }
    }
}
