//! All ids of findings, each with what it means and what helps. `docs/findings.md` is made
//! of this table.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! ids {
    ($($(#[doc = $means:literal])+ $id:ident = $name:literal, $fix:literal;)+) => {
        /// What a finding is about. Its name is stable, for scripts to match on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Id {
            $($(#[doc = $means])+ $id,)+
        }

        impl Id {
            pub const ALL: &[Id] = &[$(Id::$id,)+];

            /// As reports and documents spell it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Id::$id => $name,)+
                }
            }

            /// What is wrong where this is found; for the manual.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Id::$id => concat!($($means),+),)+
                }
            }

            /// What to do, in general; a finding's own fix knows the host. For the manual.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Id::$id => $fix,)+
                }
            }
        }
    };
}

ids! {
    // The HCAs and the fabric.

    /// The platform's profile promises an RDMA fabric, and this container has none.
    NoFabric = "no-fabric", "Do what the finding's own fix says: it is what the platform publishes. Without a fix, look at the findings about the HCAs or the interface that are missing.";
    /// There are RDMA devices, and no port of them can be used.
    NoUsableHca = "no-usable-hca", "Each port has a finding of its own that says why: mend that.";
    /// RDMA devices of the host can be seen, but this container was given none of them.
    NotAllotted = "not-allotted", "Request them: the resource of the RDMA device plugin in Kubernetes, `--device /dev/infiniband` in Docker.";
    /// `NCCL_IB_HCA` leaves out every usable HCA.
    NoHcaSelected = "no-hca-selected", "Remove or correct `NCCL_IB_HCA`.";
    /// `default-route-hca = \"skip\"` leaves out the only usable HCAs.
    DefaultRouteHcaSkipped = "default-route-hca-skipped", "Find out why the other HCAs are missing, or set `default-route-hca = \"use\"`.";
    /// `NCCL_IB_DISABLE` turns verbs off although there are usable HCAs.
    IbDisabled = "ib-disabled", "Remove `NCCL_IB_DISABLE`, unless the job is to run on TCP.";
    /// There are usable HCAs where the profile's fabric needs none.
    UnexpectedHcas = "unexpected-hcas", "Set the profile that this container's fabric belongs to.";
    /// The HCAs in use are in different InfiniBand subnets, which cannot reach each other without a router.
    SeveralIbSubnets = "several-ib-subnets", "If one subnet is for storage, name the HCAs of the others in `NCCL_IB_HCA`. Where each rail is a subnet of its own, do nothing.";
    /// There are more HCAs than GPUs, and nothing here tells whether all of them are rails.
    MoreHcasThanGpus = "more-hcas-than-gpus", "Look at `nvidia-smi topo -m` and at the networks of the HCAs; name the rails in `NCCL_IB_HCA` if not all are rails.";
    /// The HCA of the default route is used as a rail, because there would be too few rails without it.
    DefaultRouteRail = "default-route-rail", "Nothing, unless that HCA is to be kept for TCP: then set `default-route-hca = \"skip\"`.";
    /// A port has no link, or is not ACTIVE.
    PortDown = "port-down", "Check the cable, the transceiver, the switch port and, on InfiniBand, the subnet manager.";
    /// The container may not open the uverbs node of an HCA.
    UverbsDenied = "uverbs-denied", "Request the device through the RDMA device plugin (Docker: `--device /dev/infiniband`), and check the mode of the node if the container does not run as root.";
    /// The driver of the Alibaba Cloud eRDMA device is in its iWARP mode, which NCCL cannot use.
    ErdmaIwarp = "erdma-iwarp", "Load the driver on the node in its compat or ofed mode.";
    /// An HCA speaks iWARP, which NCCL cannot use.
    Iwarp = "iwarp", "Switch the driver to RoCE where the NIC can do it.";
    /// A device is neither InfiniBand nor Ethernet.
    UnknownDevice = "unknown-device", "If it is a fabric of a new kind, install its net plugin for NCCL.";
    /// The ports in use have different rates; the slowest sets the pace.
    RatesDiffer = "rates-differ", "If the odd one is for storage or TCP, leave it out of `NCCL_IB_HCA`; else check its cable and port.";
    /// `NCCL_IB_HCA` selects InfiniBand beside RoCE, which cannot connect to each other.
    MixedLinkLayers = "mixed-link-layers", "Name HCAs of one link layer in `NCCL_IB_HCA`.";
    /// There are more ports than this release of NCCL can use.
    TooManyHcas = "too-many-hcas", "Name the ports that are rails in `NCCL_IB_HCA`.";
    /// The value of `NCCL_IB_HCA` that the platform publishes does not select the HCAs to use here.
    PublishedHcasDiffer = "published-hcas-differ", "Nothing: the exact list is set instead.";
    /// `NCCL_IB_HCA` uses some of the usable HCAs, and leaves others idle.
    IdleHcas = "idle-hcas", "Remove `NCCL_IB_HCA`, or name all rails in it.";
    /// `NCCL_IB_HCA` names an HCA that this container does not have.
    StaleHca = "stale-hca", "Remove `NCCL_IB_HCA`, or name HCAs that are here.";

    // GIDs, addresses and routes of the rails.

    /// A RoCE port has no RoCE v2 GID of an address of this container.
    NoOwnGid = "no-own-gid", "Give the container an address on each RoCE interface, or use the host's network.";
    /// The GID slot that the user's value chooses is wrong for an HCA.
    GidIndex = "gid-index", "Remove `NCCL_IB_GID_INDEX`, so that the right slot is found, or set the one that the finding names.";
    /// NCCL's own search for a GID ends with an error on this host.
    GidSearch = "gid-search", "Remove the variable that the finding names, or set `NCCL_IB_GID_INDEX`.";
    /// No GID index is right for every HCA.
    GidSlotsDiffer = "gid-slots-differ", "Use NCCL 2.21 or later, which searches the slot for each HCA, or bring the tables into one order.";
    /// `NCCL_IB_ADDR_RANGE` cannot be read by NCCL, or matches no GID.
    AddrRange = "addr-range", "Write an address, a slash and a length of the same family as `NCCL_IB_ADDR_FAMILY`, or remove it.";
    /// An address family is not spelled as NCCL spells it, and is ignored.
    AddressFamily = "address-family", "Write `AF_INET` or `AF_INET6`.";
    /// The GID index that the platform publishes is not right for every HCA here.
    PublishedGidDiffers = "published-gid-differs", "Nothing: the finding says what is set instead.";
    /// The partition key that NCCL will use is missing, or makes the port a limited member.
    Pkey = "pkey", "Ask the administrator of the subnet for full membership, or set `NCCL_IB_PKEY` to the index of a full member's key.";
    /// The interface of a rail has no address that other nodes can reach, or its GID is missing.
    NoAddress = "no-address", "Check who gives the interface its address: DHCP, or the network plugin and its IPAM.";
    /// No route leads to other nodes out of the interface of a rail.
    NoRoute = "no-route", "Give the interface a route to the other nodes, or a gateway in a routing table of its own.";
    /// Interfaces share a network, so the kernel may send through the wrong one.
    OverlappingSubnets = "overlapping-subnets", "Give each interface a network or a routing table of its own, with `arp_ignore=1` and `arp_announce=2`.";

    // The interface over which the processes find each other.

    /// `NCCL_SOCKET_IFNAME` matches no interface that NCCL takes.
    StaleInterface = "stale-interface", "Remove `NCCL_SOCKET_IFNAME`, or name an interface that is up and has an address.";
    /// No default route tells which interface leads to the other nodes.
    NoInterface = "no-interface", "Set `NCCL_SOCKET_IFNAME` to the interface that the nodes share.";
    /// The processes would meet on an address that no other node can reach.
    LocalInterface = "local-interface", "Remove the variable that the finding names, or name an interface of the nodes' network.";
    /// The processes would meet on an interface that is not UP and RUNNING.
    InterfaceDown = "interface-down", "Bring the interface up, or name another in `NCCL_SOCKET_IFNAME`.";
    /// The profile's fabric is behind an interface that is missing, down, or without an address.
    InterfaceMissing = "interface-missing", "Do what the finding's own fix says: it is what the platform publishes.";
    /// `NCCL_SOCKET_IFNAME` puts the bootstrap on a rail.
    BootstrapOnRail = "bootstrap-on-rail", "Name the interface of the default route in `NCCL_SOCKET_IFNAME`, or remove it.";
    /// `NCCL_COMM_ID` does not lead the processes to each other.
    CommId = "comm-id", "Remove `NCCL_COMM_ID`; torchrun and MPI do without it.";
    /// The interface that the platform publishes is not the one to use here.
    PublishedInterfaceDiffers = "published-interface-differs", "Nothing: the finding says what is set instead.";

    // What the platform's profile asks for.

    /// The release of NCCL is older than the platform asks for.
    NcclTooOld = "nccl-too-old", "Use an image with a later NCCL.";
    /// The release of CUDA is older than the platform asks for.
    CudaTooOld = "cuda-too-old", "Use an image with a later CUDA.";
    /// The platform has RDMA for other numbers of GPUs than this container has.
    CardCount = "card-count", "Request as many GPUs as the platform publishes.";
    /// There are fewer or more NICs than the platform publishes.
    NicCount = "nic-count", "Check that the container has all RDMA devices of the instance, and that their ports are ACTIVE.";
    /// A value that the user set is another than the platform publishes.
    NotAsPublished = "not-as-published", "Nothing, if it is on purpose.";

    // What the image has.

    /// The image has no libibverbs that NCCL could load.
    NoLibibverbs = "no-libibverbs", "Install libibverbs1 and ibverbs-providers (Debian, Ubuntu), or rdma-core and libibverbs.";
    /// libibverbs has no provider for an HCA, or cannot load it.
    NoProvider = "no-provider", "Install ibverbs-providers of the same release as libibverbs.";
    /// The image has several releases of NCCL.
    NcclVersionsDiffer = "nccl-versions-differ", "Keep one.";
    /// `NCCL_VERSION` of the image is not the release that the job takes.
    NcclVersion = "nccl-version", "Nothing, if the release that the job takes is the one you want.";
    /// `NCCL_NET_PLUGIN` names a plugin that is not there.
    PluginNotFound = "plugin-not-found", "Install the plugin, or remove `NCCL_NET_PLUGIN`, or set it to `none`.";
    /// The devices need a net plugin, and none will be loaded.
    NoPlugin = "no-plugin", "Install the plugin in the image (aws-ofi-nccl for EFA).";
    /// The NICs cannot reach the memory of the GPUs.
    NoGpudirect = "no-gpudirect", "Load nvidia_peermem on the node, or use NVIDIA's open kernel modules.";

    // Limits, and what could not be read.

    /// Too little memory can be pinned.
    Memlock = "memlock", "Raise the limit: `--ulimit memlock=-1` in Docker, LimitMEMLOCK of the container runtime in Kubernetes; or give CAP_IPC_LOCK.";
    /// /dev/shm is small.
    SharedMemory = "shared-memory", "Docker: `--shm-size=16g`. Kubernetes: an emptyDir with `medium: Memory` on /dev/shm.";
    /// A file that decides something cannot be read.
    Unreadable = "unreadable", "Make it readable; `rdma-init inspect --json` has the whole list.";
    /// A shell is PID 1, so signals do not reach the command.
    ShellIsPid1 = "shell-is-pid-1", "Start rdma-init with `exec` in the shell, or with the JSON form of ENTRYPOINT.";
    /// The job has ended, and nothing has moved over the HCAs.
    NoTraffic = "no-traffic", "Start it with `NCCL_DEBUG=INFO` and look for NET/IB or NET/Socket.";

    // Variables and files of the user.

    /// NCCL will end because no network is left that it may use.
    NoNetwork = "no-network", "Remove the variable that the finding names.";
    /// `NCCL_NET` makes the job run on TCP although there are usable HCAs.
    RunsOnTcp = "runs-on-tcp", "Remove `NCCL_NET`, unless it is on purpose.";
    /// A variable is set and empty, which has a meaning of its own for NCCL.
    EmptyValue = "empty-value", "Remove the variable.";
    /// A file that NCCL is told to read does not lead where it seems to.
    ConfFile = "conf-file", "Write the whole path.";
    /// A line of nccl.conf does not mean what it seems to.
    ConfLine = "conf-line", "Write `NAME=VALUE`, with nothing before, between or after, and line ends of Unix.";
    /// `NCCL_DEBUG` has no level that NCCL knows.
    DebugLevel = "debug-level", "Write VERSION, WARN, INFO or TRACE.";
    /// What `NCCL_IB_TIMEOUT` and the retries amount to.
    IbTimeout = "ib-timeout", "Nothing; remove the variable for NCCL's own value.";
    /// A value looks like a secret, and is not left for processes that enter later.
    KeptBack = "kept-back", "Nothing; give the secret to those processes yourself.";
    /// A level is not one that NCCL knows.
    Level = "level", "Write one of the levels that the finding names.";
    /// A list is separated by other signs than commas.
    ListSeparator = "list-separator", "Separate the names by commas.";
    /// A list is longer than NCCL reads.
    ListTooLong = "list-too-long", "Shorten it, for example by a common prefix.";
    /// A variable names a file that is not there.
    MissingFile = "missing-file", "Correct the path, or remove the variable.";
    /// No NCCL reads a variable of this name, and one has nearly the same name.
    MisspeltVariable = "misspelt-variable", "Write the name that the finding gives.";
    /// A value cannot be written into nccl.conf.
    NcclConfValue = "nccl-conf-value", "Start processes that enter the container with `rdma-init exec`.";
    /// A value that NCCL reads as a number is none.
    NotANumber = "not-a-number", "Write a number, or remove the variable.";
    /// `NCCL_SOCKET_IFNAME` of one character counts as not set.
    OneCharacter = "one-character", "Write the whole name of the interface.";
    /// A number is outside the range that NCCL or the hardware takes.
    OutOfRange = "out-of-range", "Set a value in the range, or remove the variable.";
    /// A name in a list is a prefix of others, and so selects more than it names.
    PrefixMatch = "prefix-match", "Put `=` before the list for exact names.";
    /// `^` or `=` stands before a later name of a list, where NCCL takes it as a part of the name.
    RepeatedSign = "repeated-sign", "Write the sign once, before the first name.";
    /// The variable is the old name of another.
    RetiredName = "retired-name", "Write the new name.";
    /// A variable that is a switch has a value that NCCL takes for another than it seems.
    SwitchValue = "switch-value", "Write 0 or 1, or remove the variable.";
    /// NCCL cannot read a list of algorithms or protocols.
    TuningList = "tuning-list", "Write the words that the finding names.";
    /// No release of NCCL up to the latest known reads a variable of this name.
    UnknownVariable = "unknown-variable", "Nothing, if a plugin reads it; else remove it.";
    /// A name cannot be carried by every format that hands variables on.
    VariableName = "variable-name", "Use letters, digits and `_`, and no digit in front.";
    /// The release of NCCL at hand does not read the variable.
    VariableOfOtherRelease = "variable-of-other-release", "Remove it, or use the variable that the finding names.";
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_words_with_hyphens() {
        let names: BTreeSet<&str> = Id::ALL.iter().map(|id| id.name()).collect();
        assert_eq!(names.len(), Id::ALL.len());
        for name in names {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.chars().all(is_plain), "{name}");
        }
    }
}
