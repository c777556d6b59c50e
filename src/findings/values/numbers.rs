//! Numbers: what NCCL reads from the text, and whether the value is possible.

use super::{Decided, conf_file, shown};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::number::{integer, is_as_it_shows, strtoll};
use crate::libraries::nccl::ranges::{NUMBERS, Number, RangeLimit};
use crate::libraries::nccl::version::REFUSES_WORDS;
use crate::text::counted;

/// Out-of-range values that a platform or a project publishes: the variable, the value, and the publisher.
const PUBLISHED: &[(&str, i64, &str)] = &[
    (
        "NCCL_IB_RETRY_CNT",
        10,
        "Alibaba Cloud ACK's page on Arena and IBM Cloud's on its H100 cluster network publish it",
    ),
    ("NCCL_IB_RETRY_CNT", 13, "SenseCore ACP injects it"),
    ("NCCL_IB_RETRY_CNT", 20, "AMD's Primus benchmark sets it"),
    ("NCCL_IB_TIMEOUT", 300, "AMD's Primus benchmark sets it"),
];

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let mut findings = Vec::new();
    for number in NUMBERS {
        let Some(setting) = decided.user.get(number.variable).filter(|setting| !setting.value.is_empty())
        else {
            continue;
        };
        if conf_file::is_cause(setting) {
            continue;
        }
        // If NCCL misreads a text that is not a number, it is a coincidence that the result is out of range.
        findings.extend(misread(decided, setting).or_else(|| out_of_range(decided, number, setting)));
    }
    findings.extend(timeout(decided));
    findings
}

/// Reports a text that NCCL reads as a different number.
fn misread(decided: &Decided, setting: &UserSetting) -> Option<Finding> {
    let (library, text) = (decided.library(), setting.value.as_str());
    if is_as_it_shows(text) {
        return None;
    }
    let message = match strtoll(text) {
        None => format!("the number is too large, so {library} takes its default"),
        Some(number) if text.trim_start_matches(['-', '+']).chars().all(|c| c.is_ascii_digit()) => {
            format!("a leading 0 makes it octal, so {library} reads {number}")
        }
        Some(number) if text.trim_start().starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)) => {
            format!("{library} reads {number} and drops the rest")
        }
        Some(_) if decided.user.version().is_some_and(|version| version >= REFUSES_WORDS) => {
            format!("it is not a number, so {library} takes its default")
        }
        Some(number) if decided.user.version().is_some() => {
            format!("it is not a number, so {library} reads {number}")
        }
        Some(number) => {
            format!(
                "it is not a number: {library} before 2.32 reads {number}, and later releases take their default"
            )
        }
    };
    let fix = match strtoll(text) {
        None => format!("Set a smaller number in {}, or remove it.", setting.variable),
        Some(_) if text.chars().all(|c| c.is_ascii_digit()) => {
            format!("Write the number in {} without the leading 0, or remove it.", setting.variable)
        }
        Some(_) => format!("Write only the number in {}, or remove it.", setting.variable),
    };
    Some(
        Finding::warning(Id::NotANumber, format!("{}: {message}.", shown(setting)))
            .about_variables([&setting.variable])
            .explained_by(&[(Id::SwitchValue, "")])
            .with_fix(fix),
    )
}

fn out_of_range(decided: &Decided, number: &Number, setting: &UserSetting) -> Option<Finding> {
    let value = strtoll(&setting.value)?;
    if number.is_in_range(value, decided.version()) {
        return None;
    }
    let library = decided.library();
    let range = number.range(decided.version(), library);
    let acts = match number.limit {
        RangeLimit::Bits(_) => {
            format!("; an HCA that keeps only the low bits behaves as with {}", value & number.most)
        }
        _ => String::new(),
    };
    let is_it =
        |(variable, published, _): &&(&str, i64, &str)| *variable == number.variable && *published == value;
    let publisher = PUBLISHED.iter().find(is_it);
    let publisher = publisher.map(|(_, _, who)| format!(" ({who}.)")).unwrap_or_default();
    Some(
        Finding::warning(
            Id::OutOfRange,
            format!("{} is out of range: it can be {range}{acts}.{publisher}", shown(setting)),
        )
        .about_variables([&setting.variable])
        .with_fix(format!(
            "Set a value in this range, or remove {} for {library}'s default.",
            number.variable
        )),
    )
}

/// Reports what the number means in seconds, because web pages that recommend a value often state a wrong
/// default.
fn timeout(decided: &Decided) -> Option<Finding> {
    let setting = decided.user.get("NCCL_IB_TIMEOUT")?;
    let value = u32::try_from(strtoll(&setting.value)?).ok().filter(|value| (1..=31).contains(value))?;
    let seconds = 4.096e-6 * f64::from(1u32 << value);
    let retries = decided.plan.settings.iter().find(|setting| setting.variable == "NCCL_IB_RETRY_CNT");
    let retries = retries
        .and_then(|setting| integer(setting.value.as_deref()?, decided.version()))
        // The field has three bits.
        .map(|retries| retries & 7)
        .unwrap_or(7);
    Some(Finding::info(
        Id::IbTimeout,
        format!(
            "{}: the HCA waits {seconds:.2} s for the answer to a packet before it sends the packet again, up to {}; {}'s default is 20 since 2.23, 18 since 2.14, and 14 before.",
            shown(setting),
            counted(retries as usize, "time"),
            decided.library()
        ),
    )
    .about_variables([&setting.variable]))
}
