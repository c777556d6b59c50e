//! What UCX makes of its variables, and NIXL and MPI with it.

use super::shown;
use crate::finding::{Finding, Id};
use crate::libraries::ucx::transports::TlsError;
use crate::libraries::ucx::wheel::Left;
use crate::libraries::ucx::{DEVICES, GID_INDEX, Remark, SUBNETS, TRANSPORTS, Then};
use crate::plan::words::libraries::slot_of;
use crate::plan::{Decided, PortVerdict};
use crate::text::condensed;

pub(super) fn finding(decided: &Decided, remark: &Remark) -> Finding {
    // It is unknown whether the job uses UCX at all.
    let warning = |id, variable: &str, what: String| {
        Finding::warning(id, format!("{}: {what}", shown(decided, variable))).about_variables([variable])
    };
    let rails = || decided.plan.ports.iter().filter(|port| port.used).map(PortVerdict::full_name);
    let with_tcp = || {
        let names = rails().chain(decided.beside.clone()).collect::<Vec<String>>();
        format!("Remove {DEVICES}, or write {DEVICES}={}.", names.join(","))
    };
    match remark {
        Remark::Gid { variable, port, slot, address, then } => {
            let set = match variable {
                Some(variable) => format!("With {}, UCX", shown(decided, variable)),
                None => "No single index is right for all HCAs, so UCX".to_owned(),
            };
            let slot = slot_of(port, *slot, *address);
            let takes = if *then == Then::PassesOver { "looks at" } else { "takes" };
            let then = match then {
                Then::Fails => "its connections over RoCE fail or time out",
                Then::GoesOverTcp => "it finds no route there, and uses TCP",
                Then::PassesOver => "it skips the port",
                Then::HasNothing => {
                    "it finds no route there and has no TCP, so NIXL fails with a backend error"
                }
            };
            let message = format!("{set} {takes} {slot}: {then}.");
            let fix = match variable {
                Some(variable) => format!("Remove {variable}, and rdma-init fills in what is right here."),
                None => "Use UCX 1.18 or later, which can choose by the subnet, or give the HCAs of the job a common GID index.".to_owned(),
            };
            let finding = Finding::warning(Id::LibraryGid, message).about_variables(*variable);
            finding.about_ports([port]).with_fix(fix)
        }
        Remark::Unserved(own) => {
            let drivers = match own.providers.is_empty() {
                true => "no driver".to_owned(),
                false => format!("drivers only for {}", own.providers.join(", ")),
            };
            let then = match own.left {
                Left::Hcas => "NIXL does not use them",
                Left::Tcp => "NIXL uses TCP",
                Left::Nothing => "and has no TCP, so NIXL fails with a backend error",
            };
            let so = if own.left == Left::Nothing { "" } else { "so " };
            let mut hcas: Vec<&str> = own.ports.iter().filter_map(|port| port.split(':').next()).collect();
            hcas.dedup();
            let message = format!(
                "The UCX in {} has its own libibverbs, with {drivers}: it cannot open {}, {so}{then}.",
                own.package,
                condensed(&hcas)
            );
            let brought = ["ibverbs"].into_iter().chain(own.providers.iter().map(String::as_str));
            let brought: Vec<String> = brought.map(|name| format!("lib{name}")).collect();
            let fix = format!(
                "Build NIXL in this image, against its libibverbs; or put links to the image's libraries in place of {} in {}.",
                brought.join(" and "),
                own.folder
            );
            Finding::warning(Id::LibraryOnTcp, message).about_ports(own.ports.clone()).with_fix(fix)
        }
        Remark::OnTcp(variable) => {
            let what = "UCX, and NIXL and MPI on it, use only TCP, although RDMA is usable here.".to_owned();
            let excludes = decided.user.get(TRANSPORTS).is_some_and(|set| set.value.starts_with('^'));
            let fix = match *variable {
                TRANSPORTS if excludes => {
                    format!("Remove {TRANSPORTS}. If it is meant only for MPI, set it only for MPI.")
                }
                TRANSPORTS => format!(
                    "Remove {TRANSPORTS}, or add rc to it. If it is meant only for MPI, set it only for MPI."
                ),
                _ => with_tcp(),
            };
            warning(Id::LibraryOnTcp, variable, what).with_fix(fix)
        }
        Remark::NoNetwork(variables) => {
            let set: Vec<String> = variables.iter().map(|variable| shown(decided, variable)).collect();
            let leave = if set.len() == 1 { "it leaves" } else { "together they leave" };
            let message = format!(
                "{}: {leave} UCX no network, so a process reaches only processes on its own node.",
                set.join(" and ")
            );
            // For a job of one node that is as good as any.
            let finding = if set.len() == 1 { Finding::info } else { Finding::warning };
            finding(Id::LibraryValue, message)
                .about_variables(variables.iter().copied())
                .with_fix(format!("Remove {}.", variables.join(" and ")))
        }
        Remark::WithoutDatagrams => {
            let what = "UCX is left with RC, which makes no connection without UD or TCP; NIXL fails with a backend error.";
            warning(Id::LibraryValue, TRANSPORTS, what.to_owned())
                .with_fix("Write rc for rc_mlx5 and rc_verbs: it stands for both, and for the UD that they connect with.")
        }
        Remark::WithoutTcp(driver) => {
            let what = format!(
                "the list has no interface, so UCX has no TCP. A process then reaches itself over UD, which not every HCA has ({driver}); where it does not, NIXL fails with a backend error."
            );
            warning(Id::LibraryDevices, DEVICES, what).with_fix(with_tcp())
        }
        Remark::NoDevice => {
            let what = "no device of the list exists here, so UCX has no network at all.".to_owned();
            warning(Id::LibraryDevices, DEVICES, what).with_fix(with_tcp())
        }
        Remark::WithoutPort { entries, ports } => {
            let what = format!(
                "UCX knows no device named {}: before release 1.21, the number of the port belongs to the name.",
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
                "UCX accepts exact names, and takes \"{sign}\" as part of the first one, so it finds no device of the list."
            );
            warning(Id::LibraryDevices, DEVICES, what).with_fix(with_tcp())
        }
        Remark::UnknownTransports { words, meant } => {
            let what = format!("UCX knows no transport {}, and continues without.", words.join(", "));
            let fix = match meant {
                Some(meant) => format!("Write {TRANSPORTS}={meant}."),
                None => "Write names that `ucx_info -d` lists, or aliases such as rc, ud, sm, tcp, cuda; in lower case.".to_owned(),
            };
            warning(Id::LibraryValue, TRANSPORTS, what).with_fix(fix)
        }
        Remark::Transports { why, meant } => {
            let what = match why {
                TlsError::Empty => "it names no transport, and UCX fails.",
                TlsError::AllAndMore => {
                    "UCX accepts \"all\" only as the single word of the list, and fails here."
                }
                TlsError::NoneKnown => {
                    "UCX knows none of these transports, and fails: \"no usable transports/devices\". It takes names in lower case, with commas between them."
                }
            };
            let fix = match meant {
                Some(meant) if *why == TlsError::NoneKnown => format!("Write {TRANSPORTS}={meant}."),
                _ => format!("Remove {TRANSPORTS}, and UCX then chooses among all transports."),
            };
            warning(Id::LibraryValue, TRANSPORTS, what.to_owned()).with_fix(fix)
        }
        Remark::WithoutVerbs(variable) => {
            let then = match *variable {
                TRANSPORTS => "fails: \"no usable transports/devices\"",
                _ => "has no network at all",
            };
            let what = format!(
                "UCX lacks its module for HCAs here (libuct_ib.so in the directory ucx beside it), so it {then}."
            );
            let fix =
                format!("Install a UCX with InfiniBand support, or remove {variable}: UCX then uses TCP.");
            warning(Id::LibraryDevices, variable, what).with_fix(fix)
        }
        Remark::TcpAlone => {
            let message = "UCX lacks its module for HCAs here (libuct_ib.so in the directory ucx beside it), so UCX, and NIXL and MPI on it, use only TCP.";
            Finding::info(Id::LibraryOnTcp, message)
                .with_fix("Install a UCX with InfiniBand support, if the job moves its data over UCX.")
        }
        Remark::NoneOfTheJob(ports) => {
            let what = format!("UCX will use only {}, which the job skips.", condensed(ports));
            warning(Id::LibraryDevices, DEVICES, what).about_ports(ports).with_fix(with_tcp())
        }
        Remark::NoSuchValue { variable, takes } => {
            let what = format!("UCX accepts {takes} and fails on anything else.");
            let fix = match *variable {
                GID_INDEX => format!("Remove {GID_INDEX}, and rdma-init fills it in if it is needed."),
                _ => format!("Write {takes}, or remove {variable}."),
            };
            warning(Id::LibraryValue, variable, what).with_fix(fix)
        }
        Remark::NoSubnet(entry) => {
            let what = format!("\"{entry}\" is not a subnet such as 10.0.0.0/24 or fd00::/64, so UCX fails.");
            warning(Id::LibraryValue, SUBNETS, what).with_fix(without_subnets())
        }
        Remark::NoGidLeft(port) => {
            let what = format!("no GID of {port} is in these subnets, so UCX fails.");
            warning(Id::LibraryGid, SUBNETS, what).about_ports([port]).with_fix(without_subnets())
        }
        Remark::IndexAndSubnets => {
            let what = format!("{} is also set, and UCX fails if both are.", shown(decided, GID_INDEX));
            warning(Id::LibraryValue, SUBNETS, what)
                .about_variables([GID_INDEX])
                .with_fix("Remove both, and rdma-init fills in what is right here.")
        }
    }
}

fn without_subnets() -> String {
    format!("Remove {SUBNETS}, and rdma-init fills in what is right here.")
}
