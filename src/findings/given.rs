//! PCI devices that a device plugin has given, and that do not exist here.

use crate::facts::Facts;
use crate::facts::given::MOST;
use crate::finding::{Finding, Id};
use crate::text::grouped;

/// So many addresses of a variable are named, at most.
const SHOWN: usize = 16;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let missing = facts.given.iter().take(MOST).filter(|device| device.class.is_none());
    let missing = grouped(missing.map(|device| (device.variable.as_str(), device.address.clone())));
    let finding = |(variable, mut addresses): (&str, Vec<String>)| {
        addresses.sort_unstable();
        addresses.dedup();
        let more = match addresses.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        addresses.truncate(SHOWN);
        let message = format!(
            "{variable} says that a device plugin has given this container {}{more}, but the PCI bus has no such device.",
            addresses.join(", ")
        );
        Finding::warning(Id::GivenDeviceMissing, message)
            .about_variables([variable])
            .with_fix(Id::GivenDeviceMissing.remedy())
    };
    missing.into_iter().map(finding).collect()
}
