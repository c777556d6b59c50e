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

    /// The profile, which was asked for by name or recognised, is for an RDMA fabric that
    /// this container does not have.
    NoFabric = "no-fabric", "Do what the fix of the finding says: it is what the platform publishes. Without a fix, look at the other findings: they say what is wrong with each HCA.";
    /// There are RDMA devices, and no port of them can be used.
    NoUsableHca = "no-usable-hca", "Look at the lines `skip` of the report, and at the other findings: they say what is wrong with each port.";
    /// RDMA devices of the host can be seen, but this container was given none of them.
    NotAllotted = "not-allotted", "Request them: the resource of the RDMA device plugin in Kubernetes, `--device /dev/infiniband` in Docker.";
    /// `NCCL_IB_HCA` leaves out every usable HCA.
    NoHcaSelected = "no-hca-selected", "Remove or correct `NCCL_IB_HCA`.";
    /// The key `default-route-hca` is `skip`, and that leaves out the only usable HCAs.
    DefaultRouteHcaSkipped = "default-route-hca-skipped", "Find out why the other HCAs are missing, or set the key to `use`.";
    /// `NCCL_IB_DISABLE` turns verbs off although there are usable HCAs.
    IbDisabled = "ib-disabled", "Remove `NCCL_IB_DISABLE`, unless you want the job to run on TCP.";
    /// The profile is for hosts without verbs, and this container has usable HCAs, which NCCL
    /// will not use.
    UnexpectedHcas = "unexpected-hcas", "Choose the profile of these NICs, or `auto`.";
    /// The ports that `NCCL_IB_HCA` takes are in different InfiniBand subnets, which cannot
    /// reach each other without a router. One of them may be for storage.
    SeveralIbSubnets = "several-ib-subnets", "If one subnet is for storage, name the HCAs of the others in `NCCL_IB_HCA`. Do nothing where each rail is a subnet of its own.";
    /// `NCCL_IB_HCA` takes more HCAs than there are GPUs, and nothing here tells whether all
    /// of them are for the job.
    MoreHcasThanGpus = "more-hcas-than-gpus", "Look at `rdma-init plan --evidence` or `nvidia-smi topo -m`, and at the networks of the HCAs. If some are for something else, name only the others in `NCCL_IB_HCA`.";
    /// An HCA whose interface carries a default route is used for the job all the same,
    /// because without it there would be fewer HCAs than GPUs.
    DefaultRouteRail = "default-route-rail", "Nothing needs to be done. To keep that HCA for TCP alone, set the key `default-route-hca` to `skip`.";
    /// A port is left out because it is not ACTIVE: it has no link, or the subnet manager has
    /// not activated it.
    PortDown = "port-down", "Check the cable, the switch port, `rdma link` on the node and, on InfiniBand, the subnet manager. A note says where the job has enough ports without it.";
    /// The container may not open the uverbs node of an HCA.
    UverbsDenied = "uverbs-denied", "Request the device through the RDMA device plugin (Docker: `--device /dev/infiniband`), and check the mode of the node if the container does not run as root.";
    /// The driver of the Alibaba Cloud eRDMA device is in its iWARP mode, which NCCL cannot use.
    ErdmaIwarp = "erdma-iwarp", "Load the driver on the node in its compat or ofed mode.";
    /// An HCA speaks iWARP, which NCCL cannot use.
    Iwarp = "iwarp", "Switch the driver to RoCE where the NIC can do it.";
    /// A device is not a channel adapter, or its link layer is neither InfiniBand nor
    /// Ethernet, so NCCL's own transport cannot use it.
    UnknownDevice = "unknown-device", "If it is a fabric of a new kind, install the net plugin that NCCL needs for it.";
    /// The ports in use have different rates, and the slowest slows all of them down.
    RatesDiffer = "rates-differ", "If the odd one is for storage or TCP, name the others in `NCCL_IB_HCA`; otherwise check its cable and port.";
    /// `NCCL_IB_HCA` selects InfiniBand and RoCE, and one cannot connect to the other.
    MixedLinkLayers = "mixed-link-layers", "Name HCAs of one link layer in `NCCL_IB_HCA`.";
    /// More ports are usable than this release of NCCL takes.
    TooManyHcas = "too-many-hcas", "Name the HCAs that are near the GPUs in `NCCL_IB_HCA`, or use NCCL 2.19 or later, which takes 32.";
    /// The value of `NCCL_IB_HCA` that the platform publishes does not select the HCAs to use here.
    PublishedHcasDiffer = "published-hcas-differ", "Nothing needs to be done: the exact list of the HCAs is set instead.";
    /// `NCCL_IB_HCA` uses some of the usable HCAs, and leaves others idle.
    IdleHcas = "idle-hcas", "Remove `NCCL_IB_HCA`, and all of them are filled in. Leave it, if the others are for something else.";
    /// `NCCL_IB_HCA` names an HCA that this container does not have.
    StaleHca = "stale-hca", "Remove `NCCL_IB_HCA`, or name HCAs that are here.";

    // GIDs, addresses and routes of the rails.

    /// A RoCE port has no RoCE v2 GID with an address of this container in a slot that a
    /// connection can name (0 to 255), so RoCE will not connect.
    NoOwnGid = "no-own-gid", "Give the container an address on each RoCE interface (the network plugin's annotation for RDMA), or use the host's network.";
    /// What you set for the GID (`NCCL_IB_GID_INDEX`, or a variable for NCCL's search) leads
    /// to a wrong slot on an HCA.
    GidIndex = "gid-index", "Remove the variable that the finding names, and the right index is filled in.";
    /// With a variable that you set, NCCL's own search for a GID ends with an error on this host.
    GidSearch = "gid-search", "Remove the variable that the finding names, and the right index is filled in.";
    /// No single GID index is right for every HCA, and NCCL does not find the right one on
    /// each by itself. The HCAs for which the chosen slot is wrong cannot be used.
    GidSlotsDiffer = "gid-slots-differ", "Use NCCL 2.21 or later, which looks for the slot on each HCA; or give each RoCE interface the same number of addresses.";
    /// `NCCL_IB_ADDR_RANGE` is not one range, so NCCL ignores it, reads a part of it, or crashes on it.
    AddrRange = "addr-range", "Write one range, as in `10.0.0.0/8`, of the family that `NCCL_IB_ADDR_FAMILY` names; or remove it.";
    /// The value of `NCCL_SOCKET_FAMILY` or `NCCL_IB_ADDR_FAMILY` is not spelled as NCCL
    /// spells it, and is ignored.
    AddressFamily = "address-family", "Write `AF_INET` or `AF_INET6`, in capitals; or remove the variable.";
    /// The GID index that the platform publishes is not right for every HCA of this container.
    PublishedGidDiffers = "published-gid-differs", "Nothing needs to be done: the finding says what is set instead.";
    /// On InfiniBand, the slot of the partition key that NCCL will use is empty, or holds the
    /// key of a limited member. Two limited members cannot talk to each other.
    Pkey = "pkey", "Set `NCCL_IB_PKEY` to an index at which every port is a full member; where there is none, ask the administrator of the subnet manager for full membership.";
    /// A RoCE port is left out although its interface is in this container and up: the
    /// interface has no address that other nodes can reach, or the HCA has no GID for the
    /// address.
    NoAddress = "no-address", "Check what gives the interface its address: DHCP, or the network plugin and its IPAM. Where only the GID is missing, compare `show_gids` with a node where it works.";
    /// No route leads out of the interface of an HCA in use, so its connections to other
    /// nodes may fail.
    NoRoute = "no-route", "Give the interface an address with the prefix length of its network, or a route to the other nodes' RoCE network.";
    /// Interfaces share a network, so the kernel may send, or answer, through the wrong one.
    OverlappingSubnets = "overlapping-subnets", "Give each interface a network of its own, or a routing table of its own for its address (`ip rule`), with `arp_ignore=1` and `arp_announce=2`.";

    // The interface over which the processes find each other.

    /// `NCCL_SOCKET_IFNAME` matches no interface that NCCL takes, so NCCL will end with an error.
    StaleInterface = "stale-interface", "Remove `NCCL_SOCKET_IFNAME`, or name an interface that is up and has an address.";
    /// No route tells which interface leads to the other nodes, so `NCCL_SOCKET_IFNAME` stays unset.
    NoInterface = "no-interface", "Set `NCCL_SOCKET_IFNAME` to the interface through which the nodes reach each other.";
    /// NCCL's processes will meet on an interface that no other node can reach, such as `lo`
    /// or `docker0`.
    LocalInterface = "local-interface", "Set `NCCL_SOCKET_IFNAME` to the interface through which the nodes reach each other; remove `NCCL_COMM_ID` where that decides.";
    /// NCCL's processes will meet on an interface that is not UP and RUNNING, so no other
    /// node can reach it.
    InterfaceDown = "interface-down", "Bring the interface up, or name another in `NCCL_SOCKET_IFNAME`.";
    /// The profile expects RDMA behind an interface that is missing, down, or without an address.
    InterfaceMissing = "interface-missing", "Do what the fix of the finding says: it is what the platform publishes.";
    /// With a prefix or an exclusion in `NCCL_SOCKET_IFNAME`, NCCL's processes will meet on
    /// the interface of a RoCE port of the job, where other nodes may not reach them.
    BootstrapOnRail = "bootstrap-on-rail", "Write the whole name of the right interface after `=`, or remove `NCCL_SOCKET_IFNAME`: rdma-init fills it in.";
    /// `NCCL_COMM_ID` is not an address with a port, or makes NCCL take the wrong interface or none.
    CommId = "comm-id", "Remove `NCCL_COMM_ID`: torchrun and MPI tell the processes of each other without it.";
    /// The value of `NCCL_SOCKET_IFNAME` that the platform publishes is not the interface to use here.
    PublishedInterfaceDiffers = "published-interface-differs", "Nothing needs to be done: another value is set instead.";

    // What the platform's profile asks for.

    /// The release of NCCL in the image is older than the platform asks for.
    NcclTooOld = "nccl-too-old", "Use an image with a later NCCL.";
    /// The release of CUDA in the image is older than the platform asks for.
    CudaTooOld = "cuda-too-old", "Use an image with a later CUDA.";
    /// The platform has RDMA only for other numbers of GPUs than this container has.
    CardCount = "card-count", "Request one of the numbers of GPUs that the finding names.";
    /// The number of usable RDMA NICs is not the one that the platform publishes for the instance type.
    NicCount = "nic-count", "Check that the container has all RDMA devices of the instance, and that their ports are ACTIVE.";
    /// A value that you set is not the one that the platform publishes, or the platform
    /// leaves the variable unset. Your value stands.
    NotAsPublished = "not-as-published", "Nothing needs to be done, if it is on purpose.";

    // What the image has.

    /// A program or a library of the job is for another processor architecture than rdma-init:
    /// the image mixes x86-64 and arm64.
    OtherArchitecture = "other-architecture", "Build the whole image for the architecture of the node (`docker build --platform`), and copy the rdma-init of that architecture into it.";
    /// The image has no libibverbs that NCCL can load, so the job runs on TCP.
    NoLibibverbs = "no-libibverbs", "Install libibverbs1 and ibverbs-providers (Debian, Ubuntu), or rdma-core and libibverbs, in the image.";
    /// libibverbs has no provider for an HCA in the image, or cannot load it, so NCCL does
    /// not see the HCA.
    NoProvider = "no-provider", "Install ibverbs-providers from the same rdma-core as libibverbs, with its files in `/etc/libibverbs.d`.";
    /// The provider of an HCA in the image does not support the ABI that the node's kernel driver
    /// speaks, so libibverbs leaves the HCA out, and NCCL does not see it.
    ProviderKernelAbi = "provider-kernel-abi", "Install in the image the provider that belongs to the node's driver: the vendor's package where the node has the vendor's driver (Broadcom's libbnxt_re, AMD's libionic1), else ibverbs-providers. Or mount the node's library over that of the image.";
    /// The image has several releases of NCCL.
    NcclVersionsDiffer = "nccl-versions-differ", "Keep one of them: processes that load different releases cannot form one job.";
    /// The variable `NCCL_VERSION` names another release of NCCL than the job loads.
    /// rdma-init decides for the one that the job loads.
    NcclVersion = "nccl-version", "Nothing needs to be done, if the job loads the release that you want.";
    /// `NCCL_NET_PLUGIN` names a plugin that the dynamic loader does not find.
    PluginNotFound = "plugin-not-found", "Install the plugin, add its folder to `LD_LIBRARY_PATH`, or remove `NCCL_NET_PLUGIN`.";
    /// The devices need a net plugin, and NCCL will load none, so the job runs on TCP.
    NoPlugin = "no-plugin", "Install the plugin in the image (aws-ofi-nccl for EFA), or remove the variable that keeps NCCL from loading it.";
    /// GPUDirect RDMA is not available, so NCCL copies through the memory of the host.
    NoGpudirect = "no-gpudirect", "Load nvidia_peermem on the node, or use NVIDIA's open kernel module with NCCL 2.13 or later.";
    /// C2C links connect the GPUs to their CPUs, and the release of NCCL, or a variable, keeps NCCL
    /// from using GPUDirect RDMA over these links.
    C2cGpudirect = "c2c-gpudirect", "Use NCCL 2.27 or later, and leave `NCCL_NET_GDR_C2C` and `NCCL_NET_GDR_LEVEL` unset; with 2.26, set `NCCL_NET_GDR_C2C=1`.";
    /// The host has Data Direct functions of ConnectX-8, through which NCCL 2.27 and later reach
    /// the GPUs. Nothing is wrong.
    DataDirect = "data-direct", "Nothing needs to be done. If NCCL cannot register memory (`mlx5dv_reg_dmabuf_mr` in its log), or the job is slower than before, set `NCCL_IB_DATA_DIRECT=0` on all nodes.";
    /// NCCL 2.24 or 2.25 cannot make one NIC of the ports of a PCI device, and ends with an error.
    NicFusion = "nic-fusion", "Set `NCCL_NET_MERGE_LEVEL=LOC`, or use NCCL 2.26 or later.";
    /// NCCL takes HCAs of different NICs for functions of one, because they are on one PCI bus, as
    /// in a virtual machine. A GPU can then no longer use the nearest of these HCAs alone.
    NicsOfSeveralCards = "nics-of-several-cards", "Set `NCCL_IB_MERGE_VFS=0` on all nodes.";

    // NVLink between nodes.

    /// The GPUs are made for an NVLink domain of several nodes, and the container has no IMEX
    /// channel that it can use. A job on several nodes of one domain then ends with an error, or
    /// goes over the network: that depends on the release of NCCL.
    ImexChannel = "imex-channel", "In Kubernetes, make a ComputeDomain for the job, and give its pods the domain's resource claim. Elsewhere, run nvidia-imex on the nodes, and give the container a channel: `--device /dev/nvidia-caps-imex-channels/channel0`. To do without NVLink between nodes, set `NCCL_MNNVL_ENABLE=0` on all of them.";
    /// The container has an IMEX channel, and a variable or the release of NCCL keeps NCCL from
    /// using NVLink between nodes.
    NvlinkUnused = "nvlink-unused", "Remove the variable that the finding names, on all nodes; or use a later NCCL.";

    // Limits, and what could not be read.

    /// The memory that can be pinned is limited. With 8 MiB or less RDMA fails, with more a
    /// larger job does.
    Memlock = "memlock", "Raise the limit (Docker: `--ulimit memlock=-1:-1`; Kubernetes: LimitMEMLOCK of the container runtime), or add the capability IPC_LOCK and run as root.";
    /// `/dev/shm` has 64 MiB or less for several GPUs, and NCCL will find no room there.
    SharedMemory = "shared-memory", "Docker: `--shm-size=16g` or `--ipc=host`. Kubernetes: an emptyDir with `medium: Memory` on `/dev/shm`.";
    /// A file that rdma-init would decide by cannot be read or used.
    Unreadable = "unreadable", "Make it readable. `rdma-init inspect --json` has all such files in `unreadable`.";
    /// PID 1 is a shell that passes no signal on, so the command does not notice when the
    /// container is stopped.
    ShellIsPid1 = "shell-is-pid-1", "Write `exec` before rdma-init in the shell's command, or start it without a shell, with an `ENTRYPOINT` in JSON form.";
    /// The command has ended, RDMA was planned, and nothing has moved over the HCAs: the job
    /// ran on sockets, or on this node alone.
    NoTraffic = "no-traffic", "Start the job with `NCCL_DEBUG=INFO` and look for NET/IB or NET/Socket. `rdma-init self-test` proves the fabric.";

    // Where the job meets.

    /// `MASTER_ADDR` leads to the loopback, and this is not the first node of the job.
    MasterLoopback = "master-loopback", "Set `MASTER_ADDR` to an address of the first node, or to a name that leads there from each node.";
    /// `/etc/hosts` does not have the name in `MASTER_ADDR`, and DNS does not know it yet or has not answered
    /// within a second.
    MasterUnknown = "master-unknown", "Nothing, where the first node is still starting. Else correct the name, or make what gives it an address: in Kubernetes a headless Service.";

    // Libraries beside NCCL.

    /// A variable names no interface that is here, in the grammar of the library that reads it:
    /// Gloo and TensorPipe know neither prefixes nor NCCL's signs `^` and `=`.
    LibraryInterface = "library-interface", "Write the whole name of the interface, or remove the variable, and rdma-init fills it in where it is needed.";
    /// A list of a library names devices that are not here, or are spelt otherwise there; or it
    /// leaves out what the library cannot do without.
    LibraryDevices = "library-devices", "Remove the variable, or write what the fix of the finding says.";
    /// A library takes a GID that has no address of this container, because of a variable, or because
    /// no single index is right for all HCAs.
    LibraryGid = "library-gid", "Remove the variable that the finding names, and the right value is filled in.";
    /// A library goes over TCP although there are usable HCAs: a variable says so, or a package has
    /// brought a libibverbs of its own, which has no driver for these HCAs.
    LibraryOnTcp = "library-on-tcp", "Remove the variable, unless it is on purpose. A package with a libibverbs of its own is built anew in the image.";
    /// A value of a library's variable is none that the library knows.
    LibraryValue = "library-value", "Write what the fix of the finding says, or remove the variable.";
    /// A library will meet on the loopback: a variable says so, or the host's own name does, and
    /// nothing could be filled in; or the name in MASTER_ADDR leads there.
    LibraryLoopback = "library-loopback", "Name the interface that the nodes reach each other through. On a single node, nothing needs to be done.";

    /// The image has a library beside NCCL in several releases, or several packages of it.
    LibraryVersionsDiffer = "library-versions-differ", "Keep one of them. `rdma-init inspect` shows all of them.";
    /// Libraries of a package are not there, although pip has noted it as installed.
    LibraryBroken = "library-broken", "Install the package anew: `pip install --force-reinstall --no-deps NAME==VERSION`.";

    /// vLLM's map of GPUs to NICs does not fit this host, or the release of vLLM in the image.
    VllmMapping = "vllm-mapping", "Remove `VLLM_GPU_NIC_PCIE_MAPPING` and `VLLM_NIC_SELECTION_VARS`: rdma-init fills them in where they are needed.";
    /// vLLM's list of the variables that the workers of Ray do not get from the driver is no JSON list.
    VllmNodeList = "vllm-node-list", "Make it a list of names, or remove it: rdma-init writes it at the next start.";

    // Variables and files of the user.

    /// `NCCL_NET` names a network that NCCL will not find here, so NCCL will end with an error.
    NoNetwork = "no-network", "Remove `NCCL_NET`, or name `IB`, `Socket`, or the network of a net plugin that the image has. Where it is `IB`, the other findings say why no HCA can be used.";
    /// `NCCL_NET` makes the job run on TCP although there are usable HCAs.
    RunsOnTcp = "runs-on-tcp", "Remove `NCCL_NET`, unless it is on purpose.";
    /// A variable (`NCCL_NET`, `NCCL_GRAPH_FILE`, `NCCL_NET_PLUGIN`) is set and empty, and
    /// for NCCL that is not the same as unset: it ends with an error, or loads no net plugin.
    EmptyValue = "empty-value", "Remove the variable. (An empty `NCCL_NET_PLUGIN` may be on purpose.)";
    /// `NCCL_CONF_FILE` names a file that NCCL cannot read, and then NCCL does not read the
    /// one in the home folder either.
    ConfFile = "conf-file", "Write the whole path of a file: NCCL expands neither `~` nor variables in it.";
    /// A line of nccl.conf sets nothing, or NCCL takes spaces, quotes, a comment, or the end
    /// of a Windows line for a part of the name or the value.
    ConfLine = "conf-line", "Write `NAME=VALUE`, with nothing before, between or after, and the line ends of Unix.";
    /// `NCCL_DEBUG` is not a level that NCCL knows, so NCCL logs nothing.
    DebugLevel = "debug-level", "Write VERSION, WARN, INFO or TRACE.";
    /// How long an HCA waits for an answer with the value of `NCCL_IB_TIMEOUT` that you set,
    /// and how often it tries again.
    IbTimeout = "ib-timeout", "Nothing needs to be done. Remove the variable for NCCL's own value.";
    /// By its name, a variable may hold a secret. Its value is neither shown nor written, so
    /// processes that enter the container later do not get it.
    KeptBack = "kept-back", "Nothing needs to be done. Give the value to those processes yourself.";
    /// `NCCL_NET_GDR_LEVEL` or `NCCL_P2P_LEVEL` is not a level that NCCL knows, and is ignored.
    Level = "level", "Write one of the levels that the finding names, in capitals, or remove the variable.";
    /// A list has spaces, semicolons or quotes in it, which NCCL takes for a part of a name.
    ListSeparator = "list-separator", "Separate the names by commas alone.";
    /// A list has more names than NCCL reads, and the last ones do not count.
    ListTooLong = "list-too-long", "Name a prefix that the names share.";
    /// A variable names a file that cannot be opened.
    MissingFile = "missing-file", "Mount the file into the container, write its whole path, let the job's user read it, or remove the variable.";
    /// No NCCL reads a variable of this name, and one has nearly the same name.
    MisspeltVariable = "misspelt-variable", "Write the name that the finding gives, or remove the variable.";
    /// A value cannot be written into nccl.conf: it is longer than NCCL reads, or has a line break.
    NcclConfValue = "nccl-conf-value", "Start processes that enter the container with `rdma-init exec`, or let a shell read `/run/rdma-init/env.sh`.";
    /// NCCL reads the value as a number, and the number that it reads is not the one that the
    /// text seems to say.
    NotANumber = "not-a-number", "Write the number alone, without a leading 0, or remove the variable.";
    /// NCCL ignores a `NCCL_SOCKET_IFNAME` of one character, and chooses the interface itself.
    OneCharacter = "one-character", "Write the whole name of the interface; where that is one character, with `=` before it.";
    /// A number is outside the range that NCCL or the hardware takes.
    OutOfRange = "out-of-range", "Set a value in the range, or remove the variable.";
    /// A name in a list is also the beginning of other names here, so the list selects more
    /// than it names.
    PrefixMatch = "prefix-match", "Write `=` before the list, for exact names.";
    /// `^` or `=` stands before a later name of a list, where NCCL takes it for a part of the name.
    RepeatedSign = "repeated-sign", "Write the signs once, at the very start: they hold for the whole list.";
    /// The variable has an old name, which NCCL still reads where the new one is not set.
    RetiredName = "retired-name", "Write the new name, which the finding gives.";
    /// NCCL takes only 1 for a yes in this variable, and the value is another number.
    SwitchValue = "switch-value", "Write 1, or remove the variable.";
    /// `NCCL_ALGO` or `NCCL_PROTO` has a word that NCCL does not know. NCCL 2.24 and later
    /// end with an error on that.
    TuningList = "tuning-list", "Write words that the finding names, separated by commas.";
    /// No release of NCCL that rdma-init knows reads a variable of this name.
    UnknownVariable = "unknown-variable", "Nothing needs to be done, if a net plugin reads it. Otherwise remove it.";
    /// The environment has a name that no shell can set. The command gets it unchanged, and
    /// processes that enter the container later do not.
    VariableName = "variable-name", "Write the name with letters, digits and `_` alone, and no digit in front; or remove it.";
    /// The release of NCCL in the image does not read the variable yet, or no longer does.
    VariableOfOtherRelease = "variable-of-other-release", "Remove it, or do what the finding names: use another variable, or another NCCL.";
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
