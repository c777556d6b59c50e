//! The job's traffic class on RoCE, and how each library gets it.
//!
//! A switch assigns packets to its lossless class by their DSCP, the upper six bits of the traffic class. A
//! host's administrator can set a class for a port ([`crate::facts::traffic_class`]). mlx5 then gives it to
//! each queue pair that the kernel connects, instead of the class that the program requested
//! (`tclass_get_tclass` in mlx5_ib of MLNX_OFED and DOCA-Host). Queue pairs that a program creates itself
//! through DEVX keep the program's class: those of NCCL's GIN (`gin_host_gdaki.cc`), of NVSHMEM's IBGDA
//! (`ibgda.cpp`), and of UCX's rc_mlx5 and dc_mlx5 (`uct_rc_mlx5_iface_common_devx_connect_qp`). Next to
//! NCCL's lossless traffic, they are then the only ones that lose packets, and a GPU that waits for such a
//! queue pair waits forever (NVIDIA/nccl issue 2383).
//!
//! Therefore the job's class is that of its ports if all of them have one, else that of `NCCL_IB_TC`. If a
//! library's queue pairs would have another class, rdma-init fills in the job's class for it.

use super::nccl::number::strtoll;
use super::nccl::version::Version;
use super::own_verbs::roce;
use super::{Fill, LibraryContext};
use crate::fabric::Candidate;
use crate::facts::rdma::LinkLayer;
use crate::facts::traffic_class::TrafficClass;

pub(crate) const OF_NCCL: &str = "NCCL_IB_TC";
/// GIN's own class; without the variable, GIN uses the class of [`OF_NCCL`].
pub(crate) const OF_GIN: &str = "NCCL_GIN_IB_TC";

/// The first NCCL release with GIN, and with it queue pairs that NCCL creates itself.
pub(crate) const HAS_GIN: Version = Version::new(2, 28, 7);
/// The first NCCL release that reads [`OF_GIN`].
pub(crate) const HAS_CLASS_OF_GIN: Version = Version::new(2, 30, 7);

/// What connects a library's queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuePairs {
    /// The kernel connects them and gives them the port's class.
    OfKernel,
    /// The library connects its own, or at least those of this part of it.
    Own(&'static str),
}

/// A variable for the traffic class.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClassVariable {
    pub name: &'static str,
    /// The library's name in texts.
    pub library: &'static str,
    pub queue_pairs: QueuePairs,
    /// The class on RoCE v2 without the variable.
    pub default: u8,
}

const fn variable(
    name: &'static str,
    library: &'static str,
    queue_pairs: QueuePairs,
    default: u8,
) -> ClassVariable {
    ClassVariable { name, library, queue_pairs, default }
}

pub(crate) const NCCL: ClassVariable = variable(OF_NCCL, "NCCL", QueuePairs::Own("GIN"), 0);
pub(crate) const GIN: ClassVariable = variable(OF_GIN, "NCCL", QueuePairs::Own("GIN"), 0);
pub(crate) const NVSHMEM: ClassVariable =
    variable("NVSHMEM_IB_TRAFFIC_CLASS", "NVSHMEM", QueuePairs::Own("IBGDA"), 0);
/// The default is `UCT_IB_DEFAULT_ROCEV2_DSCP`.
pub(crate) const UCX: ClassVariable =
    variable("UCX_IB_TRAFFIC_CLASS", "UCX", QueuePairs::Own("rc_mlx5, dc_mlx5"), 106);
pub(crate) const MOONCAKE: ClassVariable = variable("MC_IB_TC", "Mooncake", QueuePairs::OfKernel, 0);
pub(crate) const UCCL_EP: ClassVariable = variable("UCCL_IB_TC", "UCCL", QueuePairs::OfKernel, 0);
pub(crate) const UCCL_P2P: ClassVariable = variable("UCCL_P2P_RDMA_TC", "UCCL", QueuePairs::OfKernel, 0);
pub(crate) const MORI: ClassVariable = variable("MORI_RDMA_TC", "MORI", QueuePairs::Own("EP"), 0);
pub(crate) const ROCSHMEM: ClassVariable =
    variable("ROCSHMEM_GDA_TRAFFIC_CLASS", "rocSHMEM", QueuePairs::Own("GDA"), 0);

/// The variables of all libraries.
pub(crate) const ALL: [&ClassVariable; 9] =
    [&NCCL, &GIN, &NVSHMEM, &UCX, &MOONCAKE, &UCCL_EP, &UCCL_P2P, &MORI, &ROCSHMEM];

/// What the used RoCE ports' classes have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OfPorts {
    /// No port has a class.
    Unset,
    /// All ports have this class.
    One(u8),
    /// The ports' classes differ; each port with its class, if it has one.
    Differ(Vec<(String, Option<u8>)>),
    /// A port has rules for single addresses, or an unknown text.
    Unknown,
}

/// Returns the upper six bits, the only ones that an mlx5 queue pair takes from a class: the NIC controls the
/// other two, the ECN bits.
#[must_use]
pub(crate) fn dscp(class: u8) -> u8 {
    class >> 2
}

pub(crate) fn of_ports(ports: &[Candidate]) -> OfPorts {
    let mut classes = Vec::new();
    for port in ports.iter().filter(|port| port.is_used() && port.port.link_layer == LinkLayer::Ethernet) {
        match &port.port.traffic_class {
            Some(TrafficClass::Global(class)) => classes.push((port.name(), Some(*class))),
            None => classes.push((port.name(), None)),
            Some(TrafficClass::Other(_)) => return OfPorts::Unknown,
        }
    }
    let alike = |one: Option<u8>, other: Option<u8>| one.map(dscp) == other.map(dscp);
    match classes.first() {
        None | Some((_, None)) if classes.iter().all(|(_, class)| class.is_none()) => OfPorts::Unset,
        Some((_, Some(first))) if classes.iter().all(|(_, class)| alike(*class, Some(*first))) => {
            OfPorts::One(*first)
        }
        _ => OfPorts::Differ(classes),
    }
}

/// Parses a class as libraries other than NCCL do: a decimal number.
pub(crate) fn decimal(value: &str) -> Option<u8> {
    value.trim().parse().ok()
}

/// Parses a class as NCCL does; like C, it accepts 0x6a and 0152.
pub(crate) fn of_nccl(value: &str) -> Option<u8> {
    strtoll(value).and_then(|class| u8::try_from(class).ok())
}

/// Returns the class of the job's traffic for a library's own variable, if its queue pairs would have another
/// class and the user has not set the variable.
pub(crate) fn of_job(subject: &LibraryContext, variable: &ClassVariable) -> Option<Fill> {
    if subject.value(variable.name).is_some() || roce(subject).next().is_none() {
        return None;
    }
    let library = variable.library;
    let (class, why) = match of_ports(subject.rails.ports) {
        OfPorts::One(_) if variable.queue_pairs == QueuePairs::OfKernel => return None,
        OfPorts::One(class) => {
            let why = format!(
                "the traffic class of the HCAs; without it, queue pairs that {library} connects itself would have {}",
                variable.default
            );
            (class, why)
        }
        OfPorts::Unset | OfPorts::Differ(_) | OfPorts::Unknown => {
            let job = subject.nccl();
            let why = format!("as {OF_NCCL}, so that the network treats {library}'s traffic like {job}'s");
            (of_nccl(subject.value(OF_NCCL)?)?, why)
        }
    };
    let is_other = dscp(class) != dscp(variable.default);
    is_other.then(|| Fill::new(variable.name, class.to_string(), why))
}

/// Returns the variable that gives NCCL's own queue pairs the ports' class; `None` if NCCL is right without
/// it.
pub(crate) fn for_nccl(
    ports: &[Candidate],
    release: Option<Version>,
) -> Option<(&'static ClassVariable, u8)> {
    let OfPorts::One(class) = of_ports(ports) else { return None };
    let variable = match release {
        Some(release) if release < HAS_GIN => return None,
        Some(release) if release >= HAS_CLASS_OF_GIN => &GIN,
        // GIN uses this class unless its own is set, and every release reads this variable.
        _ => &NCCL,
    };
    (dscp(class) != dscp(variable.default)).then_some((variable, class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Verdict;
    use crate::facts::rdma::{Hca, Port};

    /// Calls `ask` with ports that have these texts as their traffic classes.
    fn ports<T>(texts: &[Option<&str>], ask: impl FnOnce(&[Candidate]) -> T) -> T {
        let hca = |number: usize| Hca { name: format!("mlx5_{number}"), ..Hca::default() };
        let port = |text: &Option<&str>| Port {
            number: 1,
            link_layer: LinkLayer::Ethernet,
            traffic_class: text.map(|text| TrafficClass::from(text.to_owned())),
            ..Port::default()
        };
        let all: Vec<(Hca, Port)> =
            texts.iter().enumerate().map(|(number, text)| (hca(number), port(text))).collect();
        let candidates: Vec<Candidate> =
            all.iter().map(|(hca, port)| Candidate { hca, port, verdict: Verdict::Used }).collect();
        ask(&candidates)
    }

    #[test]
    fn ports_have_one_class_if_their_dscp_is_one() {
        let [a, b, ecn] = ["Global tclass=236", "Global tclass=106", "Global tclass=104"].map(Some);
        let of = |texts: &[Option<&str>]| ports(texts, of_ports);
        assert_eq!(of(&[]), OfPorts::Unset);
        assert_eq!(of(&[None, None]), OfPorts::Unset);
        assert_eq!(of(&[a, a]), OfPorts::One(236));
        assert_eq!(of(&[b, ecn]), OfPorts::One(106), "the bits of ECN do not count");
        let differ = |classes: [Option<u8>; 2]| {
            OfPorts::Differ(vec![("mlx5_0:1".to_owned(), classes[0]), ("mlx5_1:1".to_owned(), classes[1])])
        };
        assert_eq!(of(&[a, b]), differ([Some(236), Some(106)]));
        assert_eq!(of(&[None, a]), differ([None, Some(236)]));
        assert_eq!(of(&[a, None]), differ([Some(236), None]));
        assert_eq!(of(&[a, Some("dst_ip=10.0.0.0/8,tclass=106")]), OfPorts::Unknown);
    }

    #[test]
    fn the_class_is_set_only_if_nccl_connects_queue_pairs_itself() {
        let told = |text, release: Option<(u32, u32, u32)>| {
            let release = release.map(|(major, minor, patch)| Version::new(major, minor, patch));
            ports(&[Some(text)], |ports| for_nccl(ports, release))
                .map(|(variable, class)| (variable.name, class))
        };
        let lossless = "Global tclass=236";
        assert_eq!(told(lossless, Some((2, 27, 7))), None);
        assert_eq!(told(lossless, Some((2, 28, 7))), Some((OF_NCCL, 236)));
        assert_eq!(told(lossless, Some((2, 30, 7))), Some((OF_GIN, 236)));
        assert_eq!(told(lossless, None), Some((OF_NCCL, 236)));
        assert_eq!(told("Global tclass=2", Some((2, 30, 7))), None, "its default has this DSCP");
        assert_eq!(told("dst_ip=10.0.0.0/8,tclass=106", Some((2, 30, 7))), None);
    }
}
