//! PCI devices that a device plugin has given, and that do not exist here.

use crate::facts::Facts;
use crate::facts::given::MOST;
use crate::finding::{Finding, Id};
use crate::text::grouped;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let missing = facts.given.iter().take(MOST).filter(|device| device.class.is_none());
    let missing = grouped(missing.map(|device| (device.variable.as_str(), device.address.clone())));
    let finding = |(variable, addresses): (&str, Vec<String>)| {
        let message = format!(
            "{variable} says that a device plugin has given this container {}, but the PCI bus has no such device.",
            addresses.join(", ")
        );
        Finding::warning(Id::GivenDeviceMissing, message)
            .about_variables([variable])
            .with_fix(Id::GivenDeviceMissing.remedy())
    };
    missing.into_iter().map(finding).collect()
}
