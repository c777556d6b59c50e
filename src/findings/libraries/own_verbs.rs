//! Libraries that open HCAs themselves.

use super::shown;
use crate::finding::{Finding, Id};
use crate::libraries::own_verbs::{Remark, What};
use crate::plan::Decided;

pub fn finding(decided: &Decided, remark: &Remark) -> Finding {
    let Remark { library, variable, what } = remark;
    let set = shown(decided, variable);
    let remove = || format!("Remove {variable}, and rdma-init fills in what is needed.");
    let follow = || format!("Remove {variable}: {library} then reads NCCL's variable.");
    let (id, message, fix) = match what {
        What::NotHere { names, or_numbers: false } => (
            Id::LibraryDevices,
            format!(
                "{set}: {library} takes whole names of HCAs alone, and no HCA here is called {}.",
                names.join(", ")
            ),
            remove(),
        ),
        What::NotHere { names, or_numbers: true } => (
            Id::LibraryDevices,
            format!(
                "{set}: {library} takes whole names and numbers of HCAs, and no HCA here is {}.",
                names.join(", ")
            ),
            format!("Remove {variable}: {library} then takes the nearest HCAs of each GPU."),
        ),
        What::Slot { port, slot, index, right } => {
            let fix = match right {
                Some(right) if index == variable => format!("Remove {variable}, or set it to {right}."),
                Some(right) => format!("Remove {variable}, or set {index}={right} in its place."),
                None => remove(),
            };
            let message =
                format!("{set}: {library} takes slot {slot} of {port}, which has no GID of this container.");
            (Id::LibraryGid, message, fix)
        }
        What::OwnSlot { port, slot, right: Some(right) } => (
            Id::LibraryGid,
            format!(
                "{variable} is not set, so {library} takes slot {slot} of {port}, which has no GID of this container."
            ),
            format!("Set {variable}={right}."),
        ),
        What::OwnSlot { port, slot, right: None } => (
            Id::LibraryGid,
            format!(
                "{variable} is not set, so {library} takes slot {slot} of {port}, which has no GID of this container. One index holds for all ports, and none is right for all of them."
            ),
            format!("Use HCAs whose GIDs are in one slot, or let {library} use one HCA alone."),
        ),
        What::Strangers(ports) => (
            Id::LibraryDevices,
            format!(
                "{library} may take {}, which the job leaves out. rdma-init does not fill in {variable}: with it, each GPU would use all HCAs of the list, and not its nearest.",
                ports.join(", ")
            ),
            format!(
                "Give the container the HCAs of the job alone, or set {variable} for each process, as the one of its own GPU."
            ),
        ),
        What::StrangersOfEmpty(ports) => (
            Id::LibraryDevices,
            format!("{set}: {library} may take {}, which the job leaves out.", ports.join(", ")),
            remove(),
        ),
        What::Loopback(interface) => (
            Id::LibraryLoopback,
            format!(
                "{set}: the processes of {library} will meet on {interface}, where no other node can reach this one."
            ),
            remove(),
        ),
        What::Ports { taken, others } => {
            let set = decided.user.get(variable).map(|_| format!("{set}: ")).unwrap_or_default();
            (
                Id::LibraryDevices,
                format!(
                    "{set}{library} takes port {taken} of each HCA alone, and cannot go over {}, which the job uses.",
                    others.join(", ")
                ),
                match set.is_empty() {
                    true => format!("Let the job use port {taken} of its HCAs alone (NCCL_IB_HCA)."),
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
            format!("{set}: there is no such interface with an address, so {library} ends with {says:?}."),
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
            format!("{set}: {library} takes {values} alone, and may end at anything else."),
            format!("Write one of them, or remove {variable}."),
        ),
        What::Tcp { whatever } => {
            let whatever = if *whatever { ", whatever the value is" } else { "" };
            (
                Id::LibraryOnTcp,
                format!(
                    "{set}: the RDMA devices are usable, and {library} will run on TCP all the same{whatever}."
                ),
                format!("Remove {variable}, if that is not on purpose."),
            )
        }
        What::Renamed { hca, release } => (
            Id::LibraryDevices,
            format!(
                "IBGDA, over which DeepEP goes, opens only HCAs with mlx5 in their names in {library} {release}, and passes over {hca}; {variable} is read from 3.4.5 on."
            ),
            format!(
                "Use {library} 3.4.5 or later, or give the HCAs their kernel's names (rdma-core's rename rules)."
            ),
        ),
        What::Doorbell => {
            return Finding::info(
                Id::LibraryDevices,
                format!(
                    "The driver of the GPUs was loaded without PeerMappingOverride=1, so no GPU can ring the doorbell of an HCA: with DeepEP, {library} leaves that to the CPU, or ends where {variable} asks for gpu."
                ),
            )
            .about_variables([*variable])
            .with_fix(
                "On the host: options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in /etc/modprobe.d, and load the driver anew.",
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
    Finding::warning(id, message)
        .about_variables([*variable])
        .about_variables(also)
        .about_interfaces(interface)
        .about_ports(ports)
        .with_fix(fix)
}
