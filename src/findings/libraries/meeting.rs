//! Libraries that meet on the interface of a name, or on the address of the host's own name.

use super::shown;
use crate::finding::{Finding, Id};
use crate::libraries::meeting::{MeetingFault, Remark};
use crate::plan::Decided;
use crate::plan::words::libraries::meeting_on;
use crate::text::condensed;

pub(super) fn finding(decided: &Decided, remark: &Remark) -> Finding {
    let Remark { library, variable, what } = remark;
    let set = shown(decided, variable);
    // Gloo ends, and TensorPipe goes on where no other node can reach it.
    let lost = match *library {
        "Gloo" => "Gloo will fail with \"Unable to find address for\"",
        _ => "TensorPipe will take 127.0.0.1, which no other node can reach",
    };
    let right = match &decided.beside {
        Some(name) if decided.user.get(variable).is_none() => format!("Set {variable}={name}."),
        Some(name) => format!("Set {variable}={name}, or remove {variable}."),
        None => format!("Set {variable} to the interface through which the nodes reach each other."),
    };
    let (id, message, fix) = match what {
        MeetingFault::HostName(named) => {
            let without = match decided.user.get(variable) {
                Some(_) => format!("{library} gets nothing from {set}, so"),
                None => format!("{variable} is not set, so"),
            };
            let message = format!(
                "{without} {library} will bootstrap on {}: no other node can reach this one there.",
                meeting_on(&named.host, &named.to)
            );
            (Id::LibraryLoopback, message, right)
        }
        MeetingFault::Sign { entry, sign } => {
            let message = format!(
                "{set}: {library} accepts only exact names, and takes \"{sign}\" as part of the name \"{entry}\". No interface has that name, so {lost}."
            );
            (Id::LibraryInterface, message, right)
        }
        MeetingFault::Prefix { entry, of } => {
            let message = format!(
                "{set}: {library} accepts only exact names, and no interface is named \"{entry}\" ({} only begin with it), so {lost}.",
                condensed(of)
            );
            (Id::LibraryInterface, message, format!("Write the whole name: {variable}={}.", of[0]))
        }
        MeetingFault::List => {
            let message = format!("{set}: {library} accepts one name, not a list, so {lost}.");
            (Id::LibraryInterface, message, right)
        }
        MeetingFault::NotThere { entry, .. } if entry.is_empty() => {
            let message = format!("{set}: {library} looks for an interface with an empty name, so {lost}.");
            (Id::LibraryInterface, message, right)
        }
        MeetingFault::NotThere { entry, there } => {
            let message = format!(
                "{set}: there is no interface \"{entry}\" with an address ({} have one), so {lost}.",
                condensed(there)
            );
            (Id::LibraryInterface, message, right)
        }
        MeetingFault::Loopback(name) => {
            let message = format!(
                "{set}: {library} will bootstrap on {name}, where no other node can reach this one: a job of several nodes fails with \"Connection refused\" or a timeout."
            );
            (Id::LibraryLoopback, message, right)
        }
    };
    let there = match what {
        MeetingFault::NotThere { entry, .. } if entry.is_empty() => Vec::new(),
        MeetingFault::Prefix { of, .. } | MeetingFault::NotThere { there: of, .. } => of.clone(),
        MeetingFault::Loopback(name) => vec![name.clone()],
        _ => Vec::new(),
    };
    // It is unknown whether the job uses this library at all.
    Finding::warning(id, message).about_variables([*variable]).about_interfaces(there).with_fix(fix)
}
