//! Libraries that open HCAs themselves.

use super::shown;
use crate::finding::{Finding, Id};
use crate::libraries::own_verbs::{Remark, What};
use crate::plan::Decided;
use crate::text::condensed;

pub(super) fn finding(decided: &Decided, remark: &Remark) -> Finding {
    let Remark { library, variable, what } = remark;
    let set = shown(decided, variable);
    let remove = || format!("Remove {variable}, and rdma-init fills in what is needed.");
    let follow = || format!("Remove {variable}: {library} then reads NCCL's variable.");
    let (id, message, fix) = match what {
        What::NotHere { names, or_numbers: false } => (
            Id::LibraryDevices,
            format!(
                "{set}: {library} accepts only whole names of HCAs, and no HCA here is named {}.",
                names.join(", ")
            ),
            remove(),
        ),
        What::NotHere { names, or_numbers: true } => (
            Id::LibraryDevices,
            format!(
                "{set}: {library} accepts whole names and numbers of HCAs, and no HCA here is {}.",
                names.join(", ")
            ),
            format!("Remove {variable}: {library} then takes the nearest HCAs of each GPU."),
        ),
        What::Slot { port, slot, index, right } => {
            let fix = match right {
                Some(right) if index == variable => format!("Remove {variable}, or set it to {right}."),
                Some(right) => format!("Remove {variable}, or set {index}={right} instead."),
                None => remove(),
            };
            let message = format!(
                "{set}: {library} takes GID index {slot} of {port}, which is not a GID of this container."
            );
            (Id::LibraryGid, message, fix)
        }
        What::OwnSlot { port, slot, right: Some(right) } => (
            Id::LibraryGid,
            format!(
                "{variable} is not set, so {library} takes GID index {slot} of {port}, which is not a GID of this container."
            ),
            format!("Set {variable}={right}."),
        ),
        What::OwnSlot { port, slot, right: None } => (
            Id::LibraryGid,
            format!(
                "{variable} is not set, so {library} takes GID index {slot} of {port}, which is not a GID of this container. One index applies to all ports, and none is right for all of them."
            ),
            format!("Use HCAs whose GIDs have the same index, or let {library} use only one HCA."),
        ),
        What::Strangers(ports) => (
            Id::LibraryDevices,
            format!(
                "{library} may take {}, which the job skips. rdma-init does not fill in {variable}: with it, each GPU would use all HCAs of the list instead of its nearest.",
                condensed(ports)
            ),
            format!(
                "Give the container only the job's HCAs, or set {variable} for each process to the HCA of its own GPU."
            ),
        ),
        What::StrangersOfEmpty(ports) => (
            Id::LibraryDevices,
            format!("{set}: {library} may take {}, which the job skips.", condensed(ports)),
            remove(),
        ),
        What::Loopback(interface) => (
            Id::LibraryLoopback,
            format!(
                "{set}: the processes of {library} will bootstrap on {interface}, where no other node can reach this one."
            ),
            remove(),
        ),
        What::Ports { taken, others } => {
            let set = decided.user.get(variable).map(|_| format!("{set}: ")).unwrap_or_default();
            (
                Id::LibraryDevices,
                format!(
                    "{set}{library} takes only port {taken} of each HCA, and cannot use {}, which the job uses.",
                    others.join(", ")
                ),
                match set.is_empty() {
                    true => format!("Let the job use only port {taken} of its HCAs (NCCL_IB_HCA)."),
                    false => remove(),
                },
            )
        }
        What::NoneOfTheJob { follows_nccl } => (
            Id::LibraryDevices,
            format!("{set}: {library} takes none of the HCAs that the job uses."),
            if *follows_nccl { follow() } else { remove() },
        ),
        What::NoInterface { says, follows_nccl } => (
            Id::LibraryInterface,
            format!("{set}: there is no such interface with an address, so {library} fails with {says:?}."),
            if *follows_nccl { follow() } else { remove() },
        ),
        What::OneHca => (
            Id::LibraryDevices,
            format!(
                "{set}: with DeepEP, every process is the first of its node to {library}, and all of them take the first HCA."
            ),
            format!("Remove {variable}: {library} finds the nearest HCA of each GPU itself."),
        ),
        What::Ignored { by } => (
            Id::LibraryDevices,
            format!("{set}: {library} ignores it, because {by} is set."),
            format!("Remove {variable} or {by}."),
        ),
        What::Ends { values } => (
            Id::LibraryValue,
            format!("{set}: {library} accepts only {values}, and may fail on anything else."),
            format!("Write one of them, or remove {variable}."),
        ),
        What::Tcp { whatever } => {
            let whatever = if *whatever { ", whatever the value is" } else { "" };
            (
                Id::LibraryOnTcp,
                format!("{set}: the RDMA devices are usable, but {library} will still run on TCP{whatever}."),
                format!("Remove {variable}, unless this is intended."),
            )
        }
        What::NoRemote { .. } => (
            Id::LibraryOnTcp,
            format!("{set}: {library} has no transport between nodes, so a job of several nodes fails."),
            format!("Remove {variable}: {library} then uses the HCAs."),
        ),
        What::Renamed { hca, release } => (
            Id::LibraryDevices,
            format!(
                "IBGDA, which DeepEP uses, opens only HCAs with mlx5 in their names in {library} {release}, and skips {hca}; 3.4.5 and later read {variable}."
            ),
            format!(
                "Use {library} 3.4.5 or later, or give the HCAs their kernel's names (rdma-core's rename rules)."
            ),
        ),
        What::Doorbell => {
            return Finding::info(
                Id::LibraryDevices,
                format!(
                    "The driver of the GPUs was loaded without PeerMappingOverride=1, so no GPU can ring the doorbell of an HCA: with DeepEP, {library} leaves that to the CPU, or fails if {variable} requests gpu."
                ),
            )
            .about_variables([*variable])
            .with_fix(
                "On the host: options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in /etc/modprobe.d, and reload the driver.",
            );
        }
    };
    let also = match what {
        What::Ignored { by } => Some(*by),
        _ => None,
    };
    let ports = match what {
        What::Slot { port, .. } | What::OwnSlot { port, .. } => vec![port.clone()],
        What::Strangers(ports) | What::StrangersOfEmpty(ports) | What::Ports { others: ports, .. } => {
            ports.clone()
        }
        _ => Vec::new(),
    };
    let interface = match what {
        What::Loopback(interface) => Some(interface.clone()),
        _ => None,
    };
    let is_quiet = matches!(what, What::NoRemote { of_several: false });
    let finding = if is_quiet { Finding::info } else { Finding::warning };
    finding(id, message)
        .about_variables([*variable])
        .about_variables(also)
        .about_interfaces(interface)
        .about_ports(ports)
        .with_fix(fix)
}
