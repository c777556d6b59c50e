//! Libraries that meet on the interface of a name, or on the address of the host's own name.

use super::shown;
use crate::finding::{Finding, Id};
use crate::libraries::meeting::{Remark, What};
use crate::plan::Decided;
use crate::plan::words::libraries::meeting_on;

pub fn finding(decided: &Decided, remark: &Remark) -> Finding {
    let Remark { library, variable, what } = remark;
    let set = shown(decided, variable);
    // Gloo ends, and TensorPipe goes on where no other node can reach it.
    let lost = match *library {
        "Gloo" => "Gloo will end with \"Unable to find address for\"",
        _ => "TensorPipe will take 127.0.0.1, which no other node can reach",
    };
    let right = match &decided.beside {
        Some(name) if decided.user.get(variable).is_none() => format!("Set {variable}={name}."),
        Some(name) => format!("Set {variable}={name}, or remove {variable}."),
        None => format!("Name in {variable} the interface that the nodes reach each other through."),
    };
    let (id, message, fix) = match what {
        What::HostName(named) => {
            let without = match decided.user.get(variable) {
                Some(_) => format!("{set} says nothing to {library}, so"),
                None => format!("{variable} is not set, so"),
            };
            let message = format!(
                "{without} {library} will meet on {}: no other node can reach this one there.",
                meeting_on(&named.host, &named.to)
            );
            (Id::LibraryLoopback, message, right)
        }
        What::Sign { entry, sign } => {
            let message = format!(
                "{set}: {library} takes exact names alone, and \"{sign}\" for a part of the name \"{entry}\". No interface is called that, so {lost}."
            );
            (Id::LibraryInterface, message, right)
        }
        What::Prefix { entry, of } => {
            let message = format!(
                "{set}: {library} takes exact names alone, and no interface is called \"{entry}\" ({} only begin like this), so {lost}.",
                of.join(", ")
            );
            (Id::LibraryInterface, message, format!("Write the whole name: {variable}={}.", of[0]))
        }
        What::List => {
            let message = format!("{set}: {library} takes one name, and no list, so {lost}.");
            (Id::LibraryInterface, message, right)
        }
        What::NotThere { entry, .. } if entry.is_empty() => {
            let message = format!("{set}: {library} looks for an interface without a name, so {lost}.");
            (Id::LibraryInterface, message, right)
        }
        What::NotThere { entry, there } => {
            let message = format!(
                "{set}: there is no interface \"{entry}\" with an address ({} have one), so {lost}.",
                there.join(", ")
            );
            (Id::LibraryInterface, message, right)
        }
        What::Loopback(name) => {
            let message = format!(
                "{set}: {library} will meet on {name}, where no other node can reach this one: a job of several nodes ends with \"Connection refused\" or a time-out."
            );
            (Id::LibraryLoopback, message, right)
        }
    };
    let there = match what {
        What::NotThere { entry, .. } if entry.is_empty() => Vec::new(),
        What::Prefix { of, .. } | What::NotThere { there: of, .. } => of.clone(),
        What::Loopback(name) => vec![name.clone()],
        _ => Vec::new(),
    };
    // Nobody knows whether the job uses this library at all.
    Finding::warning(id, message).about_variables([*variable]).about_interfaces(there).with_fix(fix)
}
