//! What the container has: plain data, and the readers that collect it.
//!
//! Readers do the I/O and judge nothing. Absence is normal and becomes `None` or
//! an empty list; what is there but cannot be read becomes an [`Unreadable`].
//! Values that the kernel may extend some day are kept as it wrote them.

pub mod amd;
pub mod coherent;
pub mod counters;
pub mod data_direct;
pub mod dmi;
pub mod document;
pub mod environment;
pub mod extra;
pub mod gid;
pub mod gpu;
pub mod home;
pub mod hosts;
pub mod identity;
pub mod image;
pub mod imex;
pub mod limits;
pub mod named_files;
pub mod names;
pub mod net;
pub mod node;
pub mod node_list;
pub mod parent;
pub mod pci;
pub mod pkey;
pub mod platform;
pub mod process;
pub mod program;
pub mod rdma;
pub mod reader;
pub mod route;
pub mod rtnetlink;
pub mod rule;
pub mod secret;
pub mod settings;
pub mod shm;
pub mod start;
pub mod state;
pub mod traffic;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use reader::{Reader, Unreadable};

/// Everything that the plan decides on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// RDMA devices, in the natural order of their names.
    pub rdma: Vec<rdma::Hca>,
    pub net: net::Net,
    pub gpu: gpu::Gpus,
    /// The channels to other nodes of an NVLink domain.
    #[serde(skip_serializing_if = "imex::Imex::is_empty")]
    pub imex: imex::Imex,
    /// Memory in NUMA nodes without a CPU.
    #[serde(skip_serializing_if = "coherent::Memory::is_empty")]
    pub memory: coherent::Memory,
    /// PCI functions of NICs that reach the memory of GPUs past the CPU (Data Direct).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_direct: Vec<pci::PciDevice>,
    pub limits: limits::Limits,
    pub process: process::Process,
    /// PID 1 of the container, if it is not rdma-init and starts a command through rdma-init.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<parent::Parent>,
    pub shm: Option<shm::Shm>,
    pub dmi: dmi::Dmi,
    pub platform: platform::Platform,
    /// The names of this host and of the job's master; `None` if they were not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<names::Names>,
    /// The libraries of the container's image; `None` if they were not read.
    pub image: Option<image::Image>,
    /// vLLM's list of variables that stay each node's own, where the image has Ray and vLLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_list: Option<node_list::NodeList>,
    /// The user's home folders; `None` if they were not read.
    pub homes: Option<home::Homes>,
    /// The variables that the user set, and where.
    pub settings: settings::Settings,
    /// The settings that rdma-init itself put into the environment when the container started,
    /// with its reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filled_at_start: Vec<environment::Filled>,
    /// The conf files that exist, of all those that some release of NCCL reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conf_files: Vec<String>,
    /// Lines of conf files that name a variable, but set none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conf_lines: Vec<settings::ConfLine>,
    /// The files that variables name for NCCL to read, and whether they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named_files: Vec<named_files::NamedFile>,
    /// Whether this user may make the state folder, and files in it; `None` if that was not
    /// looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_writable: Option<bool>,
    /// What is there but could not be read.
    pub unreadable: Vec<Unreadable>,
}

impl Facts {
    /// The port of this number of an HCA.
    pub fn port(&self, hca: &str, number: u32) -> Option<(&rdma::Hca, &rdma::Port)> {
        let hca = self.rdma.iter().find(|known| known.name == hca)?;
        Some((hca, hca.ports.iter().find(|port| port.number == number)?))
    }

    /// Whether the facts hold a value of a conf file that not everybody may read.
    pub fn has_private_values(&self) -> bool {
        self.settings.0.iter().any(|setting| setting.private)
            || self.conf_lines.iter().any(|line| line.private)
    }
}

/// Where facts come from: a root folder, so that tests can lay out a host of
/// their own, and the parts of the live system that no file shows.
pub struct Sources<'a> {
    pub root: &'a Path,
    /// How the command is started.
    pub start: start::Start<'a>,
    /// Whether a variable's value matters, besides those that always do.
    pub is_setting: &'a dyn Fn(&str) -> bool,
    /// How NCCL reads a conf file.
    pub parse_conf: settings::Parse,
    /// Whether a variable's presence matters, besides those that always do.
    pub is_marker: &'a dyn Fn(&str) -> bool,
    /// The addresses of the interfaces, in the kernel's order.
    pub addresses: fn() -> Result<Vec<net::InterfaceAddress>, nix::errno::Errno>,
    /// The routes and rules; if that fails, the files below the root tell of routes.
    pub routing: fn() -> Result<rtnetlink::Routing, nix::errno::Errno>,
    /// How the name of the job's master is looked up, where no file has it.
    pub look_up: names::LookUp,
    /// Whether the image is read on a host without RDMA, too.
    pub image_in_any_case: bool,
    /// Which libraries are looked for.
    pub scope: image::Scope,
}

/// Reads everything. On a host without RDMA, the network and the image are read only if they
/// are needed: `needs_network` decides that from the settings, the platform, and the names of
/// the network devices. Never fails; see [`Facts::unreadable`].
pub fn read(sources: Sources, needs_network: impl FnOnce(&Facts, &[String]) -> bool) -> Facts {
    let reader = Reader::new(sources.root);
    // Only NCCL's conf files are looked for there, and they matter only if NCCL finds devices.
    let homes = (rdma::may_be_there(&reader) || sources.image_in_any_case)
        .then(|| home::read(&reader, sources.start.environment));
    let database = homes.as_ref().and_then(|homes| homes.database.as_deref());
    let settings::ConfFiles { settings, odd, there } =
        settings::read(&reader, sources.start, database, sources.parse_conf, sources.is_setting);
    let known = Facts {
        homes,
        named_files: named_files::read(&reader, sources.start, &settings),
        settings,
        filled_at_start: sources.start.filled.to_vec(),
        conf_files: there,
        conf_lines: odd,
        platform: platform::read(sources.start.environment, sources.is_marker),
        ..Facts::default()
    };
    let devices = if rdma::may_be_there(&reader) { None } else { net::devices(&reader) };
    let is_needed = devices.map(|devices| needs_network(&known, &devices));
    let net = match is_needed {
        Some(false) => net::Net::default(),
        _ => net::read(&reader, (sources.addresses)(), (sources.routing)()),
    };
    let own = net.own_addresses().collect();
    let rdma = rdma::read(&reader, &own);
    let reads_image = !rdma.is_empty() || is_needed == Some(true) || sources.image_in_any_case;
    let image = reads_image.then(|| image::read(&reader, sources.start, sources.scope));
    // Libraries that ask for the host's name come with PyTorch, or show in the environment.
    let asks_for_names = ["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "MASTER_ADDR"];
    let environment = sources.start.environment;
    let reads_names = sources.scope == image::Scope::All
        && image.as_ref().is_some_and(|image| {
            image.torch.is_some() || asks_for_names.iter().any(|name| environment.get(name).is_some())
        });
    let gpu = gpu::read(&reader, !rdma.is_empty());
    let has_gpu = gpu.count.is_some();
    let has_nvlink = has_gpu && gpu.make.is_nvidia();
    Facts {
        imex: if has_nvlink { imex::read(&reader) } else { imex::Imex::default() },
        memory: if has_gpu { coherent::read(&reader) } else { coherent::Memory::default() },
        data_direct: if rdma.is_empty() { Vec::new() } else { data_direct::read(&reader) },
        gpu,
        node_list: image
            .as_ref()
            .and_then(|image| node_list::read(&reader, environment, known.homes.as_ref(), image)),
        names: reads_names.then(|| names::read(&reader, &known.platform, sources.look_up)).flatten(),
        rdma,
        image,
        net,
        limits: limits::read(),
        process: process::read(&reader),
        // A command such as `plan` has no signals to pass on.
        parent: sources.start.command.and_then(|_| parent::read(&reader, sources.start.keeper)),
        shm: shm::read(&reader),
        dmi: dmi::read(&reader),
        unreadable: reader.into_unreadable(),
        ..known
    }
}
