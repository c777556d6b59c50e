//! The words for libraries beside NCCL: why a variable is filled in, and what a library will do.

use std::fmt;
use std::net::IpAddr;

use crate::libraries::meeting::{Address, End, Meeting, Named};
use crate::libraries::{Why, Will};

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

fn end(end: &End) -> String {
    format!("{} {}", end.interface, end.address)
}
