//! Findings about the choice of the interface for the bootstrap.

use crate::fabric::interface::{InterfaceChoice, candidates};
use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::plan::interface::VARIABLE;
use crate::plan::words;
use crate::text::condensed;

/// `publishes` names the publisher, as [`super::platform::publishes`] does.
pub(super) fn published_differs(publishes: &str, published: &str, chosen: &InterfaceChoice) -> Finding {
    let is = if chosen.because.is_alone() { "is " } else { "" };
    let because = words::because(chosen.because);
    Finding::info(
        Id::PublishedInterfaceDiffers,
        format!("{publishes} {VARIABLE}={published}, but here {} {is}{because}.", chosen.name),
    )
    .about_variables([VARIABLE])
    .about_variables(chosen.because.variable())
    .about_interfaces([&chosen.name])
}

pub(super) fn none(facts: &Facts, published: Option<&str>) -> Finding {
    let published =
        published.map(|name| format!(", and the published {name} does not exist here")).unwrap_or_default();
    let names: Vec<&str> = candidates(facts).map(|interface| interface.name.as_str()).collect();
    let fix = match names.as_slice() {
        [] => {
            format!(
                "Bring up an interface with an address that other nodes can reach, and name it in {VARIABLE}."
            )
        }
        some => format!("Set {VARIABLE} to one of {}.", condensed(some)),
    };
    Finding::warning(
        Id::NoInterface,
        format!("No default route shows through which interface the job's processes reach each other{published}; {VARIABLE} stays unset."),
    )
    .about_variables([VARIABLE])
    .with_fix(fix)
}
