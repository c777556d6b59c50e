//! What the container has: plain data, and the readers that collect it.
//!
//! Readers do the I/O and judge nothing. A missing file is normal, and becomes `None` or an empty list. A
//! file that exists but cannot be read becomes an [`Unreadable`]. Values that a later kernel may extend are
//! kept as the kernel wrote them.

pub(crate) mod amd;
mod attributes;
pub(crate) mod coherent;
pub(crate) mod congestion;
pub(crate) mod counters;
pub(crate) mod data_direct;
pub(crate) mod device_identity;
pub(crate) mod dmi;
pub mod document;
pub mod dra;
pub mod environment;
pub(crate) mod events;
pub(crate) mod extra;
#[cfg(test)]
pub(crate) mod fake_root;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub mod gid;
pub(crate) mod given;
pub(crate) mod gpu;
pub(crate) mod home;
pub(crate) mod hostlist;
pub(crate) mod hosts;
pub(crate) mod identity;
pub(crate) mod imex;
mod kept_files;
pub(crate) mod launchers;
pub(crate) mod limits;
pub(crate) mod named_files;

pub(crate) mod names;
pub(crate) mod natural;
pub mod net;
mod netlink;
pub(crate) mod node;
pub(crate) mod node_list;
pub(crate) mod oom;
pub(crate) mod parent;
pub(crate) mod pci;
pub(crate) mod pkey;
pub(crate) mod platform;
pub(crate) mod port_counters;
pub(crate) mod port_errors;
pub(crate) mod port_look;
pub(crate) mod port_sample;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod ray_start;
pub mod rdma;
pub(crate) mod rdma_namespace;
pub(crate) mod rdma_statistics;
pub(crate) mod reader;
pub(crate) mod resent;
pub mod route;
pub(crate) mod rtnetlink;
pub(crate) mod rule;
pub(crate) mod secret;
pub mod settings;
pub(crate) mod shm;
pub mod start;
pub(crate) mod state;
#[cfg(test)]
pub(crate) mod steps;
pub(crate) mod traffic;
pub(crate) mod traffic_class;
pub(crate) mod vpd;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::image;

pub use reader::{Reader, Unreadable};

/// Everything that the plan decides on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// RDMA devices, in the natural order of their names.
    pub rdma: Vec<rdma::Hca>,
    /// The uverbs nodes of this container whose RDMA devices are in another network namespace, in natural order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rdma_elsewhere: Vec<String>,
    pub net: net::Net,
    pub gpu: gpu::Gpus,
    /// The channels to other nodes of an NVLink domain.
    #[serde(skip_serializing_if = "imex::Imex::is_empty")]
    pub imex: imex::Imex,
    /// Memory in NUMA nodes without a CPU, and memory that cannot be pinned.
    #[serde(skip_serializing_if = "coherent::CoherentMemory::is_empty")]
    pub memory: coherent::CoherentMemory,
    /// PCI functions of NICs that access GPU memory without going through the CPU (Data Direct).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_direct: Vec<pci::PciDevice>,
    pub limits: limits::ProcessLimits,
    pub process: process::Process,
    /// PID 1 of the container, if it is not rdma-init and starts a command through rdma-init.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<parent::ParentProcess>,
    pub shm: Option<shm::Shm>,
    pub dmi: dmi::Dmi,
    /// The devices that the Pod's resource claims hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dra: Vec<dra::ClaimedDevice>,
    /// The PCI functions that device plugins have given to the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<given::GivenDevice>,
    pub platform: platform::Platform,
    /// The names of this host and of the job's master; `None` if they were not examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<names::Names>,
    /// The libraries of the container's image; `None` if they were not read.
    pub image: Option<image::Image>,
    /// vLLM's list of variables that it does not copy between nodes, if the image has Ray and vLLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_list: Option<node_list::NodeList>,
    /// The options of `ray start`, if that is the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_start: Option<ray_start::RayStart>,
    /// The user's home directories; `None` if they were not read.
    pub homes: Option<home::Homes>,
    /// The variables that the user set, and where.
    pub settings: settings::Settings,
    /// The variables that rdma-init itself put into the environment when the container started, with its
    /// reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filled_at_start: Vec<environment::Filled>,
    /// The existing conf files, among all that some release of NCCL reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conf_files: Vec<String>,
    /// Lines in conf files that name a variable but set none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conf_lines: Vec<settings::ConfLine>,
    /// The files that NCCL variables name, and whether they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named_files: Vec<named_files::NamedFile>,
    /// Whether this user may create the state directory, and files in it; `None` if that was not examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_writable: Option<bool>,
    /// The paths that exist but could not be read.
    pub unreadable: Vec<Unreadable>,
    /// The keys of rdma-init's configuration on which the decision depends; `None` if the document does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Facts {
    /// Returns the port with this number of an HCA.
    pub fn port(&self, hca: &str, number: u32) -> Option<(&rdma::Hca, &rdma::Port)> {
        let hca = self.rdma.iter().find(|known| known.name == hca)?;
        Some((hca, hca.ports.iter().find(|port| port.number == number)?))
    }

    /// Returns whether the facts contain a value from a conf file that is not world-readable.
    pub fn has_private_values(&self) -> bool {
        self.settings.0.iter().any(|setting| setting.private)
            || self.conf_lines.iter().any(|line| line.private)
    }
}

/// The sources of facts: a root directory, so that tests can provide their own host, and the parts of the
/// live system that no file shows.
pub struct Sources<'a> {
    pub root: &'a Path,
    /// How the command is started.
    pub start: start::Start<'a>,
    /// Whether a variable's value matters, in addition to those that always do.
    pub is_setting: &'a dyn Fn(&str) -> bool,
    /// How NCCL reads a conf file.
    pub parse_conf: settings::Parse,
    /// Whether rdma-init may have written a variable into a conf file, at an earlier start.
    pub may_write: fn(&str) -> bool,
    /// Whether a variable's presence matters, in addition to those that always do.
    pub is_marker: &'a dyn Fn(&str) -> bool,
    /// The files and directories whose presence matters.
    pub files: &'a [&'a str],
    /// The addresses of the interfaces, in the kernel's order.
    pub addresses: fn() -> Result<Vec<net::InterfaceAddress>, nix::errno::Errno>,
    /// Returns the routes and rules that matter in a network namespace with these addresses. If this fails,
    /// the files below the root show the routes.
    pub routing: fn(&BTreeSet<IpAddr>) -> Result<rtnetlink::Routing, nix::errno::Errno>,
    /// Looks up the name of the job's master, if no file contains it.
    pub look_up: names::LookUp,
    /// Whether to read the image even on a host without RDMA.
    pub image_in_any_case: bool,
    /// Whether a Python package matters; `None` if only NCCL and what it needs do.
    pub is_package: Option<image::packages::IsPackage>,
    /// Whether the kernel keeps each RDMA device in one network namespace.
    pub rdma_mode: fn() -> Result<rdma_namespace::Mode, nix::errno::Errno>,
}

/// What to read on a host without RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Neither the network nor the image.
    Nothing,
    Network,
    NetworkAndImage,
}

/// Reads everything. On a host without RDMA, reads the network and the image only if they are needed: `need`
/// decides that from the settings, the platform, the GPUs, and the names of the network devices. Never fails;
/// see [`Facts::unreadable`].
pub fn read(sources: Sources, need_of: impl Fn(&Facts, &[String]) -> Need) -> Facts {
    let reader = Reader::new(sources.root);
    let may_have_rdma = rdma::may_be_there(&reader);
    let gpu = gpu::read(&reader, may_have_rdma);
    // The home directories are needed only for NCCL's conf files, which matter only if NCCL finds devices.
    let homes = (may_have_rdma || gpu.count.is_some() || sources.image_in_any_case)
        .then(|| home::read(&reader, sources.start.environment));
    let database = homes.as_ref().and_then(|homes| homes.database.as_deref());
    let settings::ConfFiles { settings, odd, there } = settings::read(
        &reader,
        sources.start,
        database,
        sources.parse_conf,
        sources.may_write,
        sources.is_setting,
    );
    let known = Facts {
        homes,
        named_files: named_files::read(&reader, sources.start, &settings),
        settings,
        filled_at_start: sources.start.filled.to_vec(),
        conf_files: there,
        conf_lines: odd,
        platform: platform::read(&reader, sources.start, sources.is_marker, sources.files),
        dmi: dmi::read(&reader),
        gpu,
        ..Facts::default()
    };
    let devices = if may_have_rdma { None } else { net::devices(&reader) };
    let mut need = devices.map(|devices| need_of(&known, &devices));
    let net = match need {
        Some(Need::Nothing) => net::Net::default(),
        _ => net::read(&reader, (sources.addresses)(), sources.routing),
    };
    let looked = rdma::Looked::for_gids(&net, highest_gid_index(&known, sources.start.environment));
    let mut rdma = rdma::read(&reader, &looked);
    // The driver of RDMA is loaded, but has no device for this container.
    if rdma.is_empty() && need.is_none() {
        need = net::devices(&reader).map(|devices| need_of(&known, &devices));
    }
    let rdma_elsewhere = match rdma_namespace::nodes_alone(&reader, &rdma, sources.rdma_mode) {
        Some(alone) if alone.are_elsewhere => alone.nodes,
        Some(alone) => {
            // A device that is gone can leave its node, so one beside others means nothing.
            if let Some(node) = alone.nodes.first().filter(|_| rdma.is_empty()) {
                rdma::remember_hidden(&reader, node);
            }
            Vec::new()
        }
        None => Vec::new(),
    };
    let reads_image = !rdma.is_empty() || need == Some(Need::NetworkAndImage) || sources.image_in_any_case;
    let drivers = rdma.iter().filter_map(|hca| hca.driver.as_deref());
    let served: Vec<&str> = drivers.filter_map(image::providers::of_driver).collect();
    let image = reads_image
        .then(|| image::read(&reader, sources.start, sources.is_package, &known.settings, &served));
    // Libraries that look up the host's name come with PyTorch, or have a variable in the environment.
    let asks_for_names = ["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "MASTER_ADDR"];
    let environment = sources.start.environment;
    let reads_names = sources.is_package.is_some()
        && image.as_ref().is_some_and(|image| {
            image.torch.is_some() || asks_for_names.iter().any(|name| environment.get(name).is_some())
        });
    vpd::read(&reader, &known.gpu, &mut rdma);
    let has_gpu = known.gpu.count.is_some();
    let has_nvlink = has_gpu && known.gpu.make.is_nvidia();
    Facts {
        imex: if has_nvlink { imex::read(&reader) } else { imex::Imex::default() },
        memory: if has_gpu {
            coherent::read(&reader, !rdma.is_empty())
        } else {
            coherent::CoherentMemory::default()
        },
        data_direct: if rdma.is_empty() { Vec::new() } else { data_direct::read(&reader) },
        node_list: image
            .as_ref()
            .and_then(|image| node_list::read(&reader, environment, known.homes.as_ref(), image)),
        ray_start: ray_start::read(sources.start.words),
        names: reads_names.then(|| names::read(&reader, &known.platform, sources.look_up)).flatten(),
        rdma,
        rdma_elsewhere,
        image,
        net,
        limits: limits::read(),
        process: process::read(&reader),
        // A command such as `plan` does not forward signals.
        parent: sources.start.command.and_then(|_| parent::read(&reader, sources.start.keeper)),
        shm: shm::read(&reader),
        dra: dra::read(&reader),
        given: given::read(&reader, environment),
        unreadable: reader.into_unreadable(),
        ..known
    }
}

/// Returns the highest index of a GID table in any library's variables.
fn highest_gid_index(known: &Facts, environment: &environment::Environment) -> Option<u32> {
    let of_files = known.settings.0.iter().map(|setting| (setting.variable.as_str(), setting.value.as_str()));
    let indexes = of_files.chain(environment.iter()).filter(|(name, _)| name.contains("GID_INDEX"));
    indexes.filter_map(|(_, value)| value.trim().parse().ok()).max()
}
