//! UCX's transport `rc_gda`, through which a GPU itself starts transfers (1.20 and later, in the module
//! `libuct_ib_mlx5_gda.so`; `src/uct/ib/mlx5/gdaki/gdaki.c`). NIXL requests it for its device API, on which its
//! EP is built; it does not carry what the CPU starts.
//!
//! * It needs mlx5 HCAs, NVIDIA's GPUs, and a driver that lets a GPU write to an HCA's registers
//!   (`PeerMappingOverride`).
//! * It has a device for each pair of a GPU and an HCA near it, with the HCA's first port:
//!   `cuda0-mlx5_0:1` (`uct_gdaki_fill_cuda_tl_devices`). So a list of ports in `UCX_NET_DEVICES` switches it
//!   off. The list could contain these names, too, but their numbers are those of CUDA in each process, and
//!   UCX warns about each name that a process does not have (`ucp_report_unavailable` in
//!   `src/ucp/core/ucp_context.c`) and aborts on more than 64 names (`ucp_is_resource_in_device_list`). An
//!   exclusion of ports (`^mlx5_8:1`) leaves it on.
//! * It does not check the state of a port or its GIDs, as the other transports do. On a RoCE port without a
//!   GID, `uct_iface_open(rc_gda/cuda0-mlx5_11:1)` fails, and with it the process's only worker
//!   (`ucp_worker_add_resource_ifaces` in `src/ucp/core/ucp_worker.c`).
//! * A GPU gets as many of its nearest HCAs as there are HCAs for each GPU, whatever their state
//!   (`uct_gdaki_dev_matrix_init`, 1.21 and later). 1.20 takes all that are near.

use super::list::Devices;
use super::release::{Release, with_gda};
use super::transports::transports;
use super::{DEVICES, TRANSPORTS, taken};
use crate::fabric::Candidate;
use crate::fabric::distance::of_hca;
use crate::facts::pci::PciDevice;
use crate::facts::rdma::{Access, Hca, LinkLayer};
use crate::libraries::LibraryContext;

/// Returns the releases in the image whose `rc_gda` may run here.
fn releases(subject: &LibraryContext) -> Vec<Release> {
    let gpu = &subject.facts.gpu;
    let has_gpu = gpu.make.is_nvidia() && gpu.count.is_some_and(|count| count > 0);
    if !has_gpu || gpu.peer_mapping == Some(false) {
        return Vec::new();
    }
    let allows = |release: &Release| transports(subject.value(TRANSPORTS), *release).gda;
    with_gda(subject).into_iter().filter(allows).collect()
}

/// Returns whether `rc_gda` may run on one of the job's rails.
pub(super) fn may_run(subject: &LibraryContext) -> bool {
    let mut rails = subject.rails.ports.iter().filter(|port| port.is_used());
    rails.any(|port| is_mlx5(port.hca)) && !releases(subject).is_empty()
}

/// Returns the ports on which `rc_gda` may fail, and UCX with it.
pub(super) fn unopenable(subject: &LibraryContext) -> Vec<String> {
    let releases = releases(subject);
    let is_left = |port: &&Candidate| {
        let fails = |release: &Release| {
            Devices::read(subject.value(DEVICES), *release).has_gda(&port.name(), *release)
                && taken::lacks_gid(subject, port, *release)
        };
        releases.iter().any(fails)
    };
    let ports = subject.rails.ports.iter().filter(|port| {
        let first = port.hca.ports.iter().map(|port| port.number).min();
        is_opened(port.hca) && first == Some(port.port.number) && may_be_nearest(subject, port.hca)
    });
    ports
        .filter(|port| port.port.link_layer == LinkLayer::Ethernet)
        .filter(is_left)
        .map(Candidate::name)
        .collect()
}

/// Returns whether UCX may give an HCA to a GPU, as far as the PCI tree shows.
fn may_be_nearest(subject: &LibraryContext, hca: &Hca) -> bool {
    let gpus = &subject.facts.gpu;
    let hcas: Vec<&Hca> = subject.facts.rdma.iter().filter(|hca| has_node(hca)).collect();
    let of_each = hcas.len() / gpus.count.map_or(1, |count| (count as usize).max(1));
    let is_given = |gpu: &PciDevice| {
        let distance = of_hca(gpu, hca);
        let is_nearer =
            |other: &&&Hca| matches!((of_hca(gpu, other), distance), (Some(other), Some(own)) if other < own);
        hcas.iter().filter(is_nearer).count() < of_each
    };
    of_each > 0 && (gpus.devices.is_empty() || gpus.devices.iter().any(is_given))
}

fn is_mlx5(hca: &Hca) -> bool {
    hca.driver.as_deref() == Some("mlx5_core")
}

fn is_opened(hca: &Hca) -> bool {
    is_mlx5(hca) && hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened)
}

/// Returns whether libibverbs lists an HCA.
fn has_node(hca: &Hca) -> bool {
    hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access != Access::NoNode)
}
