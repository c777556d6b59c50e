//! Why a name has no address.

use crate::facts::reader::Unreadable;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The text, safe to show.
    #[error("\"{0}\" is neither an address nor the name of a host")]
    NotAName(String),
    #[error("it is not in /etc/hosts, and {why}{}", files(.unreadable))]
    Unknown {
        why: Box<DnsError>,
        /// The files that could not be read, but may contain the name.
        unreadable: Vec<Unreadable>,
    },
}

/// Why DNS returned no address. `servers` lists the servers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    #[error("no DNS server of /etc/resolv.conf ({servers}) answers")]
    Silent { servers: String },
    /// A server failed.
    #[error("DNS ({servers}) cannot resolve {name}: {why}")]
    Failed { servers: String, name: String, why: String },
    /// `tried` lists the names that the servers were asked for.
    #[error("DNS ({servers}) does not know it ({tried})")]
    Unknown { servers: String, tried: String },
}

fn files(unreadable: &[Unreadable]) -> String {
    unreadable.iter().map(|Unreadable { path, error }| format!("; {}: {error}", path.display())).collect()
}
