//! What UCX makes of its variables, and NIXL and MPI with it.

use super::shown;
use crate::finding::{Finding, Id};
use crate::libraries::ucx::{DEVICES, GID_INDEX, Remark, TRANSPORTS};
use crate::plan::words::libraries::slot_of;
use crate::plan::{Decided, PortVerdict};

pub fn finding(decided: &Decided, remark: &Remark) -> Finding {
    // Nobody knows whether the job uses UCX at all.
    let warning = |id, variable: &str, what: String| {
        Finding::warning(id, format!("{}: {what}", shown(decided, variable))).about_variables([variable])
    };
    let rails = || decided.plan.ports.iter().filter(|port| port.used).map(PortVerdict::full_name);
    let with_tcp = || {
        let names = rails().chain(decided.beside.clone()).collect::<Vec<String>>();
        format!("Remove {DEVICES}, or write {DEVICES}={}.", names.join(","))
    };
    match remark {
        Remark::Gid { variable, port, slot, address } => {
            let set = match variable {
                Some(variable) => format!("With {}, UCX", shown(decided, variable)),
                None => "No single index is right for all HCAs, so UCX".to_owned(),
            };
            let slot = slot_of(port, *slot, *address);
            let message = format!("{set} takes {slot}: its connections over RoCE fail or time out.");
            let fix = match variable {
                Some(variable) => format!("Remove {variable}, and rdma-init fills in what is right here."),
                None => "Use UCX 1.18 or later, which can choose by the subnet, or give each HCA of the job one slot in common.".to_owned(),
            };
            let finding = Finding::warning(Id::LibraryGid, message).about_variables(*variable);
            finding.about_ports([port]).with_fix(fix)
        }
        Remark::OnTcp(variable) => {
            let what =
                "UCX, and NIXL and MPI on it, go over TCP alone, although RDMA is usable here.".to_owned();
            let fix = match *variable {
                TRANSPORTS => format!(
                    "Remove {TRANSPORTS}, or add rc to it. If it is meant for MPI alone, set it for MPI alone."
                ),
                _ => with_tcp(),
            };
            warning(Id::LibraryOnTcp, variable, what).with_fix(fix)
        }
        Remark::WithoutTcp => {
            let what = "the list has no interface, so UCX has no TCP, over which a process reaches itself and sends its first messages; NIXL ends with an error of its backend.";
            warning(Id::LibraryDevices, DEVICES, what.to_owned()).with_fix(with_tcp())
        }
        Remark::NoDevice => {
            let what = "no device of the list is here, so UCX has no network at all.".to_owned();
            warning(Id::LibraryDevices, DEVICES, what).with_fix(with_tcp())
        }
        Remark::WithoutPort { entries, ports } => {
            let what = format!(
                "UCX knows no device called {}: before release 1.21, the number of the port belongs to the name.",
                entries.join(", ")
            );
            let fix = format!("Write {} for {}.", ports.join(","), entries.join(","));
            warning(Id::LibraryDevices, DEVICES, what).about_ports(ports).with_fix(fix)
        }
        Remark::NotThere(entries) => {
            let what = format!("there is no device {} here.", entries.join(", "));
            warning(Id::LibraryDevices, DEVICES, what).with_fix(with_tcp())
        }
        Remark::Sign(sign) => {
            let what = format!(
                "UCX takes exact names, and \"{sign}\" for a part of the first one, so no device of the list is found."
            );
            warning(Id::LibraryDevices, DEVICES, what).with_fix(with_tcp())
        }
        Remark::UnknownTransports(words) => {
            let what = format!("UCX knows no transport {}, and goes without.", words.join(", "));
            warning(Id::LibraryValue, TRANSPORTS, what).with_fix("Write names that `ucx_info -d` lists, or aliases such as rc, ud, sm, tcp, cuda; in lower case.")
        }
        Remark::NotAnIndex => {
            let what = "UCX takes a number or auto, and ends with an error on anything else.".to_owned();
            warning(Id::LibraryValue, GID_INDEX, what)
                .with_fix(format!("Remove {GID_INDEX}, and rdma-init fills it in where it is needed."))
        }
    }
}
