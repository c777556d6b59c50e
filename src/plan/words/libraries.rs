//! The words for libraries beside NCCL: why a variable is filled in, and what a library will do.

use std::fmt;
use std::net::IpAddr;

use crate::libraries::meeting::{Address, End, Meeting, Named};
use crate::libraries::own_verbs::Without;
use crate::libraries::ucx::{self, Taken};
use crate::libraries::{Why, Will, vllm};
use crate::text::condensed;

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Why::Meeting { library, named: Named { host, to } } => match to {
                Address::NotInFile => write!(
                    f,
                    "without it, {library} would take what DNS says about the host's name, which /etc/hosts does not have ({host})"
                ),
                _ => write!(f, "without it, {library} would meet on {}", meeting_on(host, to)),
            },
            Why::Ucx(ucx::Why::OtherPorts(ports)) => {
                write!(f, "without it, UCX would also take {}", condensed(ports))
            }
            Why::Ucx(ucx::Why::OtherGid { port, slot, address }) => {
                write!(f, "without it, UCX would take {}", slot_of(port, *slot, *address))
            }
            Why::Ucx(ucx::Why::EmptySlot { port, slot }) => {
                write!(f, "without it, UCX would pass over {port}, whose slot {slot} is empty")
            }
            Why::OwnVerbs { library, without } => match without {
                Without::Ports(ports) => {
                    write!(f, "without it, {library} may take {}, which the job leaves out", ports.join(", "))
                }
                Without::Slot { port, slot } => write!(
                    f,
                    "without it, {library} would take slot {slot} of {port}, which has no GID of this container"
                ),
                Without::Class(of) => {
                    write!(f, "as {of}, so that the network treats {library}'s traffic like that of NCCL")
                }
                Without::Port(port) => {
                    write!(
                        f,
                        "without it, {library} would take port {port} of each HCA, which the job does not use"
                    )
                }
                Without::Name(hca) => {
                    write!(f, "without it, IBGDA of {library} would pass over {hca}, whose name has no mlx5")
                }
                Without::Interface(interface) => {
                    write!(f, "without it, {library} would meet on {interface}")
                }
            },
            Why::Vllm(vllm::Why { hcas, distance }) => write!(
                f,
                "without it, a worker of vLLM may take another of the {hcas} HCAs than the nearest of its GPU ({distance})"
            ),
        }
    }
}

/// The subject is the library.
impl fmt::Display for Will {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Will::Meet(Meeting::On(ends)) => {
                let ends: Vec<String> = ends.iter().map(end).collect();
                write!(f, "meet on {}", ends.join(" and "))
            }
            Will::Meet(Meeting::OnName(Named { host, to: Address::NotInFile })) => {
                write!(f, "meet on the address that DNS has for the host's name {host}")
            }
            Will::Meet(Meeting::OnName(Named { host, to })) => write!(f, "meet on {}", meeting_on(host, to)),
            Will::TakeOfUcx(taken) => f.write_str(&of_ucx(taken)),
            Will::Meet(Meeting::InVain(name)) => write!(f, "look in vain for an interface \"{name}\""),
        }
    }
}

/// Where the host's name leads, and why.
pub fn meeting_on(host: &str, to: &Address) -> String {
    match to {
        Address::Own(own) => format!("{}, the address of the host's name {host} in /etc/hosts", end(own)),
        Address::Loopback(address) => {
            format!("{address}, the address of the host's name {host} in /etc/hosts")
        }
        Address::Foreign(addresses) => {
            let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            format!(
                "127.0.0.1, because this container does not have the address of the host's name {host} in /etc/hosts ({})",
                addresses.join(", ")
            )
        }
        Address::NotInFile => format!("what DNS has for the host's name {host}"),
    }
}

/// A slot of a port that is not right, and why.
pub fn slot_of(port: &str, slot: u32, address: Option<IpAddr>) -> String {
    match address {
        Some(address) => {
            format!("slot {slot} of {port}, with {address}, which is not an address of this container")
        }
        None if slot == u32::MAX => format!("a slot that {port} does not have"),
        None => format!("slot {slot} of {port}, which is empty"),
    }
}

/// `take mlx5_1:1 and mlx5_2:1, GID slot 3, and TCP on eth0`.
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
            1 => format!(" with GID slot {}", slots[0]),
            _ => format!(" with GID slots {}", slots.join(", ")),
        };
        parts.push(format!("{}{gids}", condensed(&names)));
    }
    if !taken.tcp.is_empty() {
        parts.push(format!("TCP on {}", taken.tcp.join(", ")));
    }
    match parts.is_empty() {
        true => "take no network device".to_owned(),
        false => format!("take {}", parts.join(", and ")),
    }
}

fn end(end: &End) -> String {
    format!("{} {}", end.interface, end.address)
}
