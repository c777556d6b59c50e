//! The devices in the resource claims of this Pod (Kubernetes dynamic resource allocation, DRA), as each
//! driver describes them in the container (KEP-5304, `DeviceMetadata` of `metadata.resource.k8s.io`; alpha in
//! Kubernetes 1.36, beta in 1.37).
//!
//! A driver need not write these files, so their absence means nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

use super::pci;
use super::reader::Reader;

mod metadata;

/// The directory that contains `KIND/CLAIM/REQUEST/DRIVER-metadata.json`.
const FOLDER: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// The directory for claims that the Pod names, and the one for claims made from a template, where the entry
/// has the name that the Pod uses.
const KINDS: [&str; 2] = ["resourceclaims", "resourceclaimtemplates"];

const SUFFIX: &str = "-metadata.json";

/// The most entries to use of each directory, and the most devices. A Pod may have 64 claims
/// (`PodSpec.resourceClaims`), and a claim 32 requests and 32 devices.
const MOST_ENTRIES: usize = 128;
const MOST_DEVICES: usize = 512;

/// The most entries to list of a directory, so that those to use are the first by name, and of all directories
/// together. With two drivers for each request, 64 claims of 32 requests have about 6,300.
const MOST_LISTED: usize = 4096;
const MOST_LISTED_IN_ALL: usize = 16_384;

/// The most bytes of all files together. Two versions of a device with all its attributes have about three KiB.
const MOST_BYTES: usize = 4 << 20;

/// What an unreadable file counts as, in bytes: if it is too long, it has been read all the same.
const UNREADABLE: usize = 64 << 10;

/// A device in a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimedDevice {
    /// The name of the claim; for a claim made from a template, the name of the Pod's entry for it.
    pub claim: String,
    pub request: String,
    /// Such as `dra.net`.
    pub driver: String,
    /// The device's name in its pool, which the kernel does not know.
    pub name: String,
    /// The attributes by name, such as `resource.kubernetes.io/pciBusID`. Numbers and booleans are stored as
    /// text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

impl ClaimedDevice {
    /// Returns the address of the device's PCI function in the kernel's spelling, such as `0000:8d:00.0`: from the
    /// standard attribute, from DRANET's older one, or from the one of NVIDIA's GPU driver. A text that is no
    /// address counts as absent.
    #[must_use]
    pub fn pci_address(&self) -> Option<String> {
        let names = ["resource.kubernetes.io/pciBusID", "dra.net/pciAddress", "gpu.nvidia.com/pciBusID"];
        names.iter().find_map(|name| pci::address(self.attribute(name)?))
    }

    /// Returns the RDMA device's name on the node (DRANET). In exclusive mode, the device may have another
    /// name in the container.
    #[must_use]
    pub fn rdma_device(&self) -> Option<&str> {
        self.text("dra.net/rdmaDevice")
    }

    /// Returns whether the driver says that this is an RDMA device: DRANET, or the driver for SR-IOV
    /// (k8snetworkplumbingwg/dra-driver-sriov, `pkg/consts/consts.go`).
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        let names = ["dra.net/rdma", "sriovnetwork.k8snetworkplumbingwg.io/rdmaCapable"];
        self.rdma_device().is_some() || names.iter().any(|name| self.attribute(name) == Some("true"))
    }

    /// Returns the instance type, which DRANET reads from the cloud's metadata.
    #[must_use]
    pub fn instance_type(&self) -> Option<&str> {
        ["alibaba.dra.net/instanceType", "azure.dra.net/vmSize"].iter().find_map(|name| self.text(name))
    }

    /// Returns the placement group of the instance. On Azure, instances of different placement groups do not
    /// share an InfiniBand fabric (DRANET's documentation for Azure).
    #[must_use]
    pub fn placement_group(&self) -> Option<&str> {
        self.text("azure.dra.net/placementGroupId")
    }

    /// Returns the NVLink domain of the instance, which DRANET reads from Oracle's metadata on machines that
    /// have one, such as BM.GPU.GB200 (`pkg/cloudprovider/oke/oke.go`). NVIDIA's own drivers (for GPUs and for
    /// compute domains) give no device an attribute that shows its domain or clique.
    #[must_use]
    pub fn nvlink_domain(&self) -> Option<&str> {
        self.text("oke.dra.net/gpuMemoryFabricId")
    }

    /// Returns an attribute that has a text. A cloud's metadata has an empty one for an instance without a group.
    fn text(&self, name: &str) -> Option<&str> {
        self.attribute(name).filter(|value| !value.trim().is_empty())
    }

    /// Returns an attribute by its full name. A driver may omit its own domain from an attribute's name.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let plain = || {
            let (domain, plain) = name.split_once('/')?;
            self.attributes.get(plain).filter(|_| domain == self.driver)
        };
        self.attributes.get(name).or_else(plain).map(String::as_str)
    }
}

/// Reads the devices of all claims that this container can see, each once.
pub(crate) fn read(reader: &Reader) -> Vec<ClaimedDevice> {
    if !reader.is_there(FOLDER) {
        return Vec::new();
    }
    let mut search = Search { reader, devices: IndexSet::new(), listed: 0, bytes: 0 };
    if let Err(limit) = search.all() {
        reader.remember(&reader.path(FOLDER), limit.to_string());
    }
    search.devices.into_iter().collect()
}

/// Why the rest is not read.
enum Limit {
    Entries,
    Bytes,
    Devices,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Limit::Entries => write!(f, "it has more than {MOST_LISTED_IN_ALL} entries")?,
            Limit::Bytes => write!(f, "its files have more than {} MiB", MOST_BYTES >> 20)?,
            Limit::Devices => write!(f, "it describes more than {MOST_DEVICES} devices")?,
        }
        f.write_str(", and rdma-init has left the rest out")
    }
}

/// The devices that were found so far, and what that has cost.
struct Search<'a> {
    reader: &'a Reader,
    devices: IndexSet<ClaimedDevice>,
    listed: usize,
    bytes: usize,
}

impl Search<'_> {
    fn all(&mut self) -> Result<(), Limit> {
        for kind in KINDS {
            let claims = format!("{FOLDER}/{kind}");
            for claim in self.first_names(&claims)? {
                let requests = format!("{claims}/{claim}");
                for request in self.first_names(&requests)? {
                    let files = format!("{requests}/{request}");
                    for file in self.first_names(&files)?.iter().filter(|name| name.ends_with(SUFFIX)) {
                        self.add(&claim, &format!("{files}/{file}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn first_names(&mut self, folder: &str) -> Result<Vec<String>, Limit> {
        let mut names = Vec::new();
        let add = |name: &str| names.push(name.to_owned());
        self.reader.each_name_if_listable(Path::new(folder), MOST_LISTED, add);
        self.listed += names.len();
        if self.listed > MOST_LISTED_IN_ALL {
            return Err(Limit::Entries);
        }
        names.sort_unstable();
        if names.len() > MOST_ENTRIES {
            let problem = format!(
                "it has at least {} entries, and rdma-init has read only the first {MOST_ENTRIES} by name",
                names.len()
            );
            self.reader.remember(&self.reader.path(folder), problem);
            names.truncate(MOST_ENTRIES);
        }
        Ok(names)
    }

    fn add(&mut self, claim: &str, path: &str) -> Result<(), Limit> {
        let text = self.reader.text(path);
        self.bytes += text.as_ref().map_or(UNREADABLE, String::len);
        if self.bytes > MOST_BYTES {
            return Err(Limit::Bytes);
        }
        match text.as_deref().map(metadata::described) {
            Some(Ok(metadata)) => metadata.add_to(&mut self.devices, claim),
            Some(Err(problem)) => {
                self.reader.remember(&self.reader.path(path), problem);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Entry point for the fuzzers; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(super) use metadata::fuzz;

#[cfg(test)]
mod tests;
