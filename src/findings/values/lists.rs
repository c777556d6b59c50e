//! Faults in lists, of both HCAs and interfaces.

use super::{Decided, shown};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::libraries::nccl::list::{Entry, Pattern};
use crate::text::condensed;

/// Reports entries that contain spaces, semicolons, or quotes.
pub(super) fn separators(library: Flavor, pattern: &Pattern, setting: &UserSetting) -> Option<Finding> {
    let odd: Vec<&Entry> =
        pattern.entries.iter().filter(|entry| entry.name.contains([';', ' ', '\t', '"', '\''])).collect();
    if odd.is_empty() {
        return None;
    }
    let message = format!(
        "{}: only a comma separates names. {library} takes {} for a name, with the spaces, semicolons and quotes in it, and finds no such device.",
        shown(setting),
        quoted(odd)
    );
    let cleaned: String = setting
        .value
        .chars()
        .filter(|c| !"\"'".contains(*c))
        .map(|c| if c == ';' { ',' } else { c })
        .collect();
    let parts: Vec<&str> = cleaned.split([',', ' ', '\t']).filter(|part| !part.is_empty()).collect();
    Some(Finding::warning(Id::ListSeparator, message).about_variables([&setting.variable]).with_fix(format!(
        "Write {}={}.",
        setting.variable,
        parts.join(",")
    )))
}

/// Reports `^` and `=` in front of a later name, where NCCL treats them as part of the name.
pub(super) fn repeated_signs(library: Flavor, pattern: &Pattern, setting: &UserSetting) -> Option<Finding> {
    let odd: Vec<&Entry> =
        pattern.entries.iter().filter(|entry| entry.name.starts_with(['^', '='])).collect();
    if odd.is_empty() {
        return None;
    }
    let message = format!(
        "{}: the signs ^ and = are valid once, at the start and in this order, and apply to the whole list. {library} takes {} as a name, and finds no such device.",
        shown(setting),
        quoted(odd)
    );
    let names: Vec<String> = pattern
        .entries
        .iter()
        .map(|entry| entry.to_string().trim_start_matches(['^', '=']).to_owned())
        .collect();
    let exclude = pattern.exclude || pattern.entries.iter().any(|entry| entry.name.contains('^'));
    let exact = pattern.exact || pattern.entries.iter().any(|entry| entry.name.contains('='));
    let signs = format!("{}{}", if exclude { "^" } else { "" }, if exact { "=" } else { "" });
    Some(Finding::warning(Id::RepeatedSign, message).about_variables([&setting.variable]).with_fix(format!(
        "Write {}={signs}{}.",
        setting.variable,
        names.join(",")
    )))
}

/// Reports a name that is also a prefix of other names here.
pub(super) fn prefixes(pattern: &Pattern, setting: &UserSetting, here: &[&str]) -> Option<Finding> {
    if pattern.exact {
        return None;
    }
    let others = |name: &str| -> Vec<&str> {
        here.iter().copied().filter(|other| *other != name && other.starts_with(name)).collect()
    };
    let wide: Vec<String> = pattern
        .entries
        .iter()
        .filter(|entry| here.contains(&entry.name.as_str()))
        .map(|entry| (entry, others(&entry.name)))
        .filter(|(_, others)| {
            // If the list also contains the other names, they are not a surprise.
            others.iter().any(|other| !pattern.entries.iter().any(|entry| entry.name == *other))
        })
        .map(|(entry, others)| format!("{} also means {}", entry.name, condensed(&others)))
        .collect();
    if wide.is_empty() {
        return None;
    }
    let (signs, rest) =
        if pattern.exclude { ("^=", &setting.value[1..]) } else { ("=", setting.value.as_str()) };
    let message = format!("{}: a name without = is a prefix, so {}.", shown(setting), wide.join("; "));
    Some(
        Finding::warning(Id::PrefixMatch, message)
            .about_variables([&setting.variable])
            .with_fix(format!("Write {}={signs}{rest}.", setting.variable)),
    )
}

/// Reports entries after the last one that NCCL reads.
pub(super) fn dropped(
    decided: &Decided,
    pattern: &Pattern,
    setting: &UserSetting,
    fix: &str,
) -> Option<Finding> {
    if pattern.dropped.is_empty() {
        return None;
    }
    let names: Vec<&str> = pattern.dropped.iter().map(|entry| entry.name.as_str()).collect();
    let message = format!(
        "{} ({}) has {} names, and {} reads the first {}; {} ignores {}.",
        setting.variable,
        setting.origin,
        pattern.entries.len() + pattern.dropped.len(),
        decided.nccl(),
        pattern.entries.len(),
        decided.library(),
        condensed(&names)
    );
    Some(Finding::warning(Id::ListTooLong, message).about_variables([&setting.variable]).with_fix(fix))
}

fn quoted(entries: Vec<&Entry>) -> String {
    entries.iter().map(|entry| format!("{:?}", entry.name)).collect::<Vec<_>>().join(", ")
}
