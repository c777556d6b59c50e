//! The texts about libraries other than NCCL: why rdma-init fills in a variable, and what a library will do.

use std::fmt;

use crate::image::flavor::Flavor;
use crate::libraries::exclusions::LeftTo;
use crate::libraries::meeting::{BootstrapAddress, End, HostNameAddress, NamedHost};
use crate::libraries::node_address::{TARGET, Takes};
use crate::libraries::own_verbs::WithoutVariable;
use crate::libraries::ucx::{self, Taken};
use crate::libraries::{FillReason, Will, node_address, vllm};
use crate::text::condensed;

impl FillReason {
    /// Writes the reason. `of_job` is the job's NCCL or RCCL.
    pub(super) fn write(&self, f: &mut fmt::Formatter, of_job: Flavor) -> fmt::Result {
        match self {
            FillReason::Meeting { library, named: named @ NamedHost { host, to } } => match to {
                HostNameAddress::NotInFile => write!(
                    f,
                    "without it, {library} would take the DNS entry of the host's name, which /etc/hosts does not contain ({host})"
                ),
                HostNameAddress::FileNotAsked(services) => write!(
                    f,
                    "without it, {library} would take the entry of {} for the host's name {host}: nsswitch.conf does not use /etc/hosts",
                    services.join(", ")
                ),
                _ => write!(f, "without it, {library} would bootstrap on {named}"),
            },
            FillReason::Ucx(ucx::UcxReason::OtherPorts { ports, gda }) => {
                let then = match gda {
                    ucx::Gda::Absent => "",
                    ucx::Gda::Kept => {
                        "; a list of the job's HCAs would turn off rc_gda, UCX's transfers that GPUs start"
                    }
                    ucx::Gda::Lost => "; it turns off rc_gda, UCX's transfers that GPUs start",
                };
                write!(f, "without it, UCX would also take {}{then}", condensed(ports))
            }
            FillReason::Ucx(ucx::UcxReason::WithoutGid(ports)) => write!(
                f,
                "without it, UCX may open {}, without a GID, for transfers that GPUs start (rc_gda), and fail; it turns these off",
                condensed(ports)
            ),
            FillReason::Ucx(ucx::UcxReason::OtherGid { port, slot, address }) => {
                write!(f, "without it, UCX would take {}", ucx::slot_of(port, *slot, *address))
            }
            FillReason::Ucx(ucx::UcxReason::EmptySlot { port, slot }) => {
                write!(f, "without it, UCX would skip {port}, whose GID entry {slot} is empty")
            }
            FillReason::Ucx(ucx::UcxReason::NoRoute { port, slot, address }) => write!(
                f,
                "without it, UCX would find no route from {address}, the node's address at GID index {slot} of {port}"
            ),
            FillReason::OwnVerbs { library, without } => match without {
                WithoutVariable::Ports(ports) => {
                    write!(f, "without it, {library} may take {}, which the job skips", condensed(ports))
                }
                WithoutVariable::Slot { port, slot } => write!(
                    f,
                    "without it, {library} would take GID index {slot} of {port}, which is not a GID of this container"
                ),
                WithoutVariable::Class(of) => {
                    write!(f, "as {of}, so that the network treats {library}'s traffic like {of_job}'s")
                }
                WithoutVariable::ClassOfPorts { takes } => write!(
                    f,
                    "the traffic class of the HCAs; without it, queue pairs that {library} connects itself would have {takes}"
                ),
                WithoutVariable::Port(port) => {
                    write!(
                        f,
                        "without it, {library} would take port {port} of each HCA, which the job does not use"
                    )
                }
                WithoutVariable::Pin(of) => write!(
                    f,
                    "{library} then finds the right indexes itself, even after the HCAs' GID tables change; without it, it would follow {of}"
                ),
                WithoutVariable::Name(hca) => {
                    write!(
                        f,
                        "without it, IBGDA of {library} would skip {hca}, whose name does not contain mlx5"
                    )
                }
                WithoutVariable::Interface(interface) => {
                    write!(f, "without it, {library} would bootstrap on {interface}")
                }
            },
            FillReason::LeftTo(LeftTo::Workers) => {
                write!(
                    f,
                    "each worker of vLLM sets it to the HCA of its own GPU, and keeps the present value after it"
                )
            }
            FillReason::LeftTo(LeftTo::Option { program, option }) => {
                write!(f, "with it, {program} would not apply its option {option}")
            }
            FillReason::NodeAddress(node_address::AddressReason {
                library,
                takes: Takes::ByRoute { address, .. },
                on_ray: true,
            }) => {
                write!(
                    f,
                    "the address of --node-ip-address, by which Ray knows this node; without it, {library} would request a placement on {address}, and wait forever"
                )
            }
            FillReason::NodeAddress(node_address::AddressReason { library, takes, .. }) => match takes {
                Takes::ByRoute { address, interface } => write!(
                    f,
                    "without it, {library} would take {address} on {interface}, the source of the route to {TARGET}"
                ),
                Takes::OfName(address) => {
                    write!(
                        f,
                        "without it, {library} would take {address}, the address of the host's name in /etc/hosts"
                    )
                }
                Takes::Variable { variable, address } => write!(
                    f,
                    "without it, {library} would take {variable}={address}, at which other nodes do not reach this container"
                ),
                Takes::Nothing => write!(
                    f,
                    "no route leads to {TARGET}, so without it {library} would find no address of this node"
                ),
            },
            FillReason::Vllm(vllm::MappingReason { hcas, distance }) => write!(
                f,
                "without it, a worker of vLLM may take another of the {hcas} HCAs than the nearest of its GPU ({distance})"
            ),
        }
    }
}

/// Writes a predicate. The subject is the library.
impl fmt::Display for Will {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Will::Meet(BootstrapAddress::On(ends)) => {
                let ends: Vec<String> = ends.iter().map(End::to_string).collect();
                write!(f, "bootstrap on {}", ends.join(" and "))
            }
            Will::Meet(BootstrapAddress::OnName(NamedHost { host, to: HostNameAddress::NotInFile })) => {
                write!(f, "bootstrap on the DNS address of the host's name {host}")
            }
            Will::Meet(BootstrapAddress::OnName(named)) => write!(f, "bootstrap on {named}"),
            Will::UseUcxChoice(taken) => f.write_str(&of_ucx(taken)),
            Will::UseWorkerPorts(ports) => {
                write!(f, "take the HCA of each GPU, as the worker of vLLM names it, of {}", condensed(ports))
            }
            Will::Meet(BootstrapAddress::NoSuchInterface(name)) => write!(f, "find no interface \"{name}\""),
        }
    }
}

/// Returns a clause such as `take mlx5_1:1 and mlx5_2:1, GID slot 3, and TCP on eth0`.
fn of_ucx(taken: &Taken) -> String {
    let mut parts = Vec::new();
    if !taken.ports.is_empty() {
        let names: Vec<&str> = taken.ports.iter().map(|port| port.name.as_str()).collect();
        let mut slots: Vec<u32> =
            taken.ports.iter().filter_map(|port| Some(port.slot.as_ref()?.index)).collect();
        slots.sort_unstable();
        slots.dedup();
        let slots: Vec<String> = slots.iter().map(u32::to_string).collect();
        let gids = match slots.len() {
            0 => String::new(),
            1 => format!(" with GID index {}", slots[0]),
            _ => format!(" with GID indexes {}", slots.join(", ")),
        };
        parts.push(format!("{}{gids}", condensed(&names)));
    }
    if !taken.tcp.is_empty() {
        parts.push(format!("TCP on {}", condensed(&taken.tcp)));
    }
    if !taken.has_verbs {
        let left =
            if taken.tcp.is_empty() { "no network device" } else { &format!("{} alone", parts.join(", ")) };
        return format!("take {left}: it lacks libuct_ib.so, its module for HCAs");
    }
    match parts.is_empty() {
        true => "take no network device".to_owned(),
        false => format!("take {}", parts.join(", and ")),
    }
}
