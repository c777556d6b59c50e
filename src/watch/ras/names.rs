//! The names of hosts that RAS knows by address: this host's own name, and the names in /etc/hosts, which
//! launchers and Kubernetes write.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use super::answer::Host;
use crate::facts::hosts;
use crate::facts::net;
use crate::facts::reader::Reader;
use crate::text::{shortened, visible};

#[derive(Debug, Default)]
pub(crate) struct Names {
    own: Option<String>,
    own_addresses: Vec<IpAddr>,
    /// The names in /etc/hosts.
    of_file: HashMap<IpAddr, String>,
}

impl Names {
    pub(crate) fn of_this_host() -> Names {
        let reader = Reader::new(Path::new("/"));
        let addresses = net::system_addresses().unwrap_or_default();
        let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        Names {
            own: own.filter(|name| !name.is_empty()),
            own_addresses: addresses.into_iter().filter_map(|found| Some(found.address?.addr())).collect(),
            of_file: hosts::names(&reader.bytes("/etc/hosts", hosts::LONGEST).unwrap_or_default()),
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn new(own: &str, own_addresses: &[&str], file: &str) -> Names {
        let addresses = own_addresses.iter().map(|address| address.parse().unwrap());
        Names {
            own: Some(own.to_owned()),
            own_addresses: addresses.collect(),
            of_file: hosts::names(file.as_bytes()),
        }
    }

    pub(super) fn is_own(&self, host: &Host) -> bool {
        matches!(host, Host::Address(address) if self.own_addresses.contains(address))
    }

    /// Returns the name of a host, or its address if no name is known.
    pub(crate) fn name(&self, host: &Host) -> String {
        let address = match host {
            Host::Address(address) => *address,
            Host::Other(text) => return visible(&shortened(text)),
        };
        let own = self.own.as_ref().filter(|_| self.is_own(host));
        // /etc/hosts has several names for this host; the others are `localhost`.
        match own.or_else(|| self.of_file.get(&address)) {
            Some(name) => visible(&shortened(name)),
            None => address.to_string(),
        }
    }
}
