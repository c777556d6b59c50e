//! What the choice of the interface for the bootstrap has shown.

use crate::finding::{Finding, Id};
use crate::plan::Decided;
use crate::plan::interface::{VARIABLE, candidates};
use crate::plan::remark::Remark;

pub fn finding(decided: &Decided, remark: &Remark) -> Option<Finding> {
    match remark {
        Remark::PublishedInterfaceDiffers { published, chosen, rule } => Some(Finding::info(
            Id::PublishedInterfaceDiffers,
            format!(
                "Profile {} publishes {VARIABLE}={published}, but here {chosen} {rule}.",
                decided.profile.name
            ),
        )),
        Remark::NoInterface { published } => Some(none(decided, published.as_deref())),
        _ => None,
    }
}

fn none(decided: &Decided, published: Option<&str>) -> Finding {
    let published =
        published.map(|name| format!(", and the published {name} is not here")).unwrap_or_default();
    let names: Vec<&str> = candidates(decided.facts).map(|interface| interface.name.as_str()).collect();
    let fix = match names.as_slice() {
        [] => {
            format!(
                "Bring up an interface with an address that other nodes can reach, and name it in {VARIABLE}."
            )
        }
        some => format!("Set {VARIABLE} to one of {}.", some.join(", ")),
    };
    Finding::warning(
        Id::NoInterface,
        format!("No default route shows through which interface the job's processes reach each other{published}; {VARIABLE} stays unset."),
    )
    .with_fix(fix)
}
