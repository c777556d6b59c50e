//! Numbers: what NCCL reads from the text, and whether the value is possible.

use super::{Subject, conf_file, shown};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::number::{integer, strtoll};
use crate::libraries::nccl::version::{REFUSES_WORDS, Version};
use crate::text::counted;

/// A variable that NCCL reads as an integer (`ncclLoadParam`).
struct Number {
    variable: &'static str,
    least: i64,
    most: i64,
    limit: RangeLimit,
}

/// Why the range ends there.
enum RangeLimit {
    Unknown,
    /// The field has this many bits.
    Bits(u32),
    Because(&'static str),
    /// With this number, the library chooses.
    Choice(i64),
    /// The library has no room for more.
    Room(i64),
}

const fn number(variable: &'static str, least: i64, most: i64, limit: RangeLimit) -> Number {
    Number { variable, least, most, limit }
}

const ANY: RangeLimit = RangeLimit::Unknown;

/// The variables that people set, and fields of the queue pair and of the address
/// vector (InfiniBand specification, modify QP; `ibv_modify_qp`).
const NUMBERS: &[Number] = &[
    number("NCCL_BUFFSIZE", 0, i64::MAX, ANY),
    number("NCCL_CROSS_NIC", 0, 2, RangeLimit::Choice(2)),
    number("NCCL_CUMEM_ENABLE", -2, 1, RangeLimit::Choice(-2)),
    number("NCCL_DMABUF_ENABLE", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_ADAPTIVE_ROUTING", -2, 1, RangeLimit::Choice(-2)),
    number("NCCL_IB_AR_THRESHOLD", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_DATA_DIRECT", 0, 2, RangeLimit::Because("0, 1 and 2 have a meaning")),
    number("NCCL_IB_DISABLE", i64::MIN, i64::MAX, ANY),
    // The finding `gid` reports a larger index.
    number("NCCL_IB_GID_INDEX", -1, i64::MAX, ANY),
    number("NCCL_IB_MERGE_NICS", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_MERGE_VFS", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_FIFO_TC", -1, 255, RangeLimit::Bits(8)),
    number("NCCL_IB_PCI_RELAXED_ORDERING", 0, 2, RangeLimit::Choice(2)),
    number("NCCL_IB_PKEY", 0, 65535, RangeLimit::Because("it is an index into a table")),
    number("NCCL_IB_QPS_PER_CONNECTION", 1, 128, RangeLimit::Room(128)),
    number("NCCL_IB_RETRY_CNT", 0, 7, RangeLimit::Bits(3)),
    number("NCCL_IB_ROCE_VERSION_NUM", 1, 2, RangeLimit::Because("there are RoCE v1 and v2")),
    number("NCCL_IB_SL", 0, 15, RangeLimit::Bits(4)),
    number("NCCL_IB_SPLIT_DATA_ON_QPS", i64::MIN, i64::MAX, ANY),
    number("NCCL_IB_TC", 0, 255, RangeLimit::Bits(8)),
    number("NCCL_IB_TIMEOUT", 0, 31, RangeLimit::Bits(5)),
    number("NCCL_IB_USE_INLINE", i64::MIN, i64::MAX, ANY),
    number("NCCL_IGNORE_CPU_AFFINITY", i64::MIN, i64::MAX, ANY),
    number("NCCL_MAX_CTAS", 0, i64::MAX, ANY),
    number("NCCL_MAX_NCHANNELS", 0, i64::MAX, ANY),
    number("NCCL_MIN_CTAS", 0, i64::MAX, ANY),
    number("NCCL_MIN_NCHANNELS", 0, i64::MAX, ANY),
    number("NCCL_NET_GDR_READ", i64::MIN, i64::MAX, ANY),
    number("NCCL_NSOCKS_PERTHREAD", i64::MIN, i64::MAX, ANY),
    number("NCCL_NTHREADS", 0, i64::MAX, ANY),
    number("NCCL_NVLS_ENABLE", 0, 2, RangeLimit::Choice(2)),
    number("NCCL_P2P_DISABLE", i64::MIN, i64::MAX, ANY),
    number("NCCL_P2P_NET_CHUNKSIZE", 0, i64::MAX, ANY),
    number("NCCL_PXN_DISABLE", i64::MIN, i64::MAX, ANY),
    number("NCCL_SHM_DISABLE", i64::MIN, i64::MAX, ANY),
    number("NCCL_SOCKET_NTHREADS", i64::MIN, i64::MAX, ANY),
];

/// Values out of range that a platform or a project publishes: (variable, value, who publishes it).
const PUBLISHED: &[(&str, i64, &str)] = &[
    ("NCCL_IB_RETRY_CNT", 10, "IBM Cloud's page on its H100 cluster network publishes it"),
    ("NCCL_IB_RETRY_CNT", 13, "SenseCore ACP injects it"),
    ("NCCL_IB_RETRY_CNT", 20, "AMD's Primus benchmark sets it"),
    ("NCCL_IB_TIMEOUT", 300, "AMD's Primus benchmark sets it"),
];

/// Since this release the default is -1, for no choice.
const TC_AND_SL_UNSET: Version = Version::new(2, 26, 0);

pub(super) fn findings(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    for number in NUMBERS {
        let Some(setting) = subject.user.get(number.variable).filter(|setting| !setting.value.is_empty())
        else {
            continue;
        };
        if conf_file::is_cause(setting) {
            continue;
        }
        // What NCCL makes of a text that is not a number is out of range by accident.
        findings.extend(misread(subject, setting).or_else(|| out_of_range(subject, number, setting)));
    }
    findings.extend(timeout(subject));
    findings
}

/// Reports a text that is not the number that NCCL makes of it.
fn misread(subject: &Subject, setting: &UserSetting) -> Option<Finding> {
    let (library, text) = (subject.library(), setting.value.as_str());
    let message = match strtoll(text) {
        None => format!("the number is too large, so {library} takes its default"),
        Some(number) if number.to_string() == text.trim_start().trim_start_matches('+') => return None,
        Some(number)
            if is_hexadecimal(text) || text.trim_start_matches(['-', '+']).chars().all(|c| c == '0') =>
        {
            // NCCL reads the number that the text shows.
            let _ = number;
            return None;
        }
        Some(number) if text.trim_start_matches(['-', '+']).chars().all(|c| c.is_ascii_digit()) => {
            format!("a leading 0 makes it octal, so {library} reads {number}")
        }
        Some(number) if text.trim_start().starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)) => {
            format!("{library} reads {number} and drops the rest")
        }
        Some(_) if subject.user.version().is_some_and(|version| version >= REFUSES_WORDS) => {
            format!("it is not a number, so {library} takes its default")
        }
        Some(number) if subject.user.version().is_some() => {
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
            .with_fix(fix),
    )
}

fn is_hexadecimal(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']).strip_prefix("0x");
    digits.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit()))
}

fn out_of_range(subject: &Subject, number: &Number, setting: &UserSetting) -> Option<Finding> {
    let value = strtoll(&setting.value)?;
    let may_be_unset =
        ["NCCL_IB_TC", "NCCL_IB_SL"].contains(&number.variable) && subject.version() >= TC_AND_SL_UNSET;
    let least = if may_be_unset { -1 } else { number.least };
    if (least..=number.most).contains(&value) {
        return None;
    }
    let range = if number.most == i64::MAX {
        format!("{least} or more")
    } else {
        format!("{least} to {}", number.most)
    };
    let library = subject.library();
    let limit = match number.limit {
        RangeLimit::Unknown => String::new(),
        RangeLimit::Because(why) => format!(" ({why})"),
        RangeLimit::Choice(number) => format!(" ({number} lets {library} choose)"),
        RangeLimit::Room(most) => format!(" ({library} has room for {most})"),
        RangeLimit::Bits(bits) => format!(
            " (the field has {bits} bits); an HCA that keeps only the low bits behaves as with {}",
            value & number.most
        ),
    };
    let is_it =
        |(variable, published, _): &&(&str, i64, &str)| *variable == number.variable && *published == value;
    let publisher = PUBLISHED.iter().find(is_it);
    let publisher = publisher.map(|(_, _, who)| format!(" ({who}.)")).unwrap_or_default();
    Some(
        Finding::warning(
            Id::OutOfRange,
            format!("{} is out of range: it can be {range}{limit}.{publisher}", shown(setting)),
        )
        .about_variables([&setting.variable])
        .with_fix(format!(
            "Set a value in this range, or remove {} for {library}'s default.",
            number.variable
        )),
    )
}

/// Reports what the number means in seconds. Web pages that advise a value often state a wrong default.
fn timeout(subject: &Subject) -> Option<Finding> {
    let setting = subject.user.get("NCCL_IB_TIMEOUT")?;
    let value = u32::try_from(strtoll(&setting.value)?).ok().filter(|value| (1..=31).contains(value))?;
    let seconds = 4.096e-6 * f64::from(1u32 << value);
    let retries = subject.plan.settings.iter().find(|setting| setting.variable == "NCCL_IB_RETRY_CNT");
    let retries = retries
        .and_then(|setting| integer(setting.value.as_deref()?, subject.version()))
        // The field has three bits.
        .map(|retries| retries & 7)
        .unwrap_or(7);
    Some(Finding::info(
        Id::IbTimeout,
        format!(
            "{}: the HCA waits {seconds:.2} s for the answer to a packet before it sends the packet again, up to {}; {}'s default is 20 since 2.23, 18 since 2.14, and 14 before.",
            shown(setting),
            counted(retries as usize, "time"),
            subject.library()
        ),
    )
    .about_variables([&setting.variable]))
}
