//! All IDs of findings. A row has all that is known about one: its name, the check of the self-test that it belongs to,
//! what an error of it keeps from the job, what it means, and its fix. `docs/findings.md` is generated from this table.

use std::fmt;

use serde::{Serialize, Serializer};

/// What an error keeps from the job, besides what the plan's fabric and NCCL's forecast say themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    Nothing,
    /// The ports that the finding is about, or all if it names none, connect to no other node.
    Connection,
    /// NCCL fails.
    Job,
    /// The job does not get to use the fabric at all, or not the one that it should.
    Fabric,
    /// Memory cannot be pinned. This has its own key, so it does not count for `require-rdma`.
    Memory,
}

macro_rules! ids {
    ($($(#[doc = $means:literal])+
        $id:ident = $name:literal, $(check $check:literal,)? $(blocks $blocks:ident,)? $fix:literal;)+) => {
        /// What a finding is about. Its name is stable, for scripts to match on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Id {
            $($(#[doc = $means])+ $id,)+
        }

        impl Id {
            pub const ALL: &[Id] = &[$(Id::$id,)+];

            /// Returns the name in reports and documents.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Id::$id => $name,)+
                }
            }

            /// Returns the check of the self-test that the finding belongs to; `None` if only a start, the watcher or the
            /// end of a job makes the finding.
            #[must_use]
            pub fn check(self) -> Option<&'static str> {
                match self {
                    $(Id::$id => [$(Some($check),)? None][0],)+
                }
            }

            #[must_use]
            pub fn blocks(self) -> Blocks {
                match self {
                    $(Id::$id => [$(Blocks::$blocks,)? Blocks::Nothing][0],)+
                }
            }

            /// Returns what a finding with this ID means, for the manual.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Id::$id => concat!($($means),+),)+
                }
            }

            /// Returns the general fix; a finding's own fix is specific to the host.
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

    /// The profile, which you requested by name or rdma-init recognized, is for an RDMA fabric that
    /// this container does not have.
    NoFabric = "no-fabric", check "fabric", "Check the other findings, and the lines `skip` of `rdma-init plan`: they say what is wrong with each HCA. If the finding has a fix, it is what the platform publishes.";
    /// There are RDMA devices, but none of their ports can be used.
    NoUsableHca = "no-usable-hca", check "fabric", "Check the other findings, and the lines `skip` of `rdma-init plan`: they say what is wrong with each port.";
    /// The job has several nodes with GPUs, and this container has no RDMA device, so NCCL
    /// runs on TCP between the nodes. Or the firmware shows a machine with EFA devices, the image has
    /// their net plugin, and this container was given none of them.
    NoRdma = "no-rdma", check "fabric", "Request the RDMA devices: the resource of the RDMA device plugin in Kubernetes, `--device /dev/infiniband` in Docker. If the nodes have no RDMA, set `NCCL_NET=Socket`, which requests TCP.";
    /// The container has the uverbs node of an RDMA device, but the device itself is in another
    /// network namespace: the node's RDMA subsystem is in exclusive mode.
    RdmaNamespace = "rdma-namespace", check "fabric", "Move the device into the container: the RDMA CNI plugin or a DRA driver in Kubernetes, `rdma dev set NAME netns PID` elsewhere. Or set the node's mode to `shared` (`rdma system set netns shared`).";
    /// RDMA devices of the host are visible, but this container was given none of them.
    NotAllotted = "not-allotted", check "fabric", "Request them: the resource of the RDMA device plugin in Kubernetes, `--device /dev/infiniband` in Docker.";
    /// `NCCL_IB_HCA` excludes every usable HCA.
    NoHcaSelected = "no-hca-selected", check "fabric", "Remove or correct `NCCL_IB_HCA`.";
    /// The key `default-route-hca` is `skip`, which excludes the only usable HCAs.
    DefaultRouteHcaSkipped = "default-route-hca-skipped", check "fabric", "Check why the other HCAs are missing, or set the key to `use`.";
    /// `NCCL_IB_DISABLE` turns verbs off although there are usable HCAs.
    IbDisabled = "ib-disabled", check "fabric", "Remove `NCCL_IB_DISABLE`, unless you want the job to run on TCP.";
    /// The profile is for hosts without verbs, but this container has usable HCAs, which NCCL will
    /// not use; or you have named a profile for HCAs of another driver.
    UnexpectedHcas = "unexpected-hcas", check "fabric", "Choose the profile of these NICs, or `auto`.";
    /// The ports that `NCCL_IB_HCA` takes are in different InfiniBand subnets, which cannot
    /// reach each other without a router. One of them may be for storage.
    SeveralIbSubnets = "several-ib-subnets", check "fabric", "If one subnet is for storage, name the HCAs of the others in `NCCL_IB_HCA`. If each rail has its own subnet, no action is needed.";
    /// `NCCL_IB_HCA` takes more HCAs than there are GPUs, and rdma-init cannot tell whether all of
    /// them are for the job.
    MoreHcasThanGpus = "more-hcas-than-gpus", check "count", "Check `rdma-init plan --evidence` or `nvidia-smi topo -m`, and the networks of the HCAs. If some are for something else, name only the others in `NCCL_IB_HCA`.";
    /// The job uses an HCA whose interface carries a default route, because without it there would
    /// be fewer HCAs than GPUs.
    DefaultRouteRail = "default-route-rail", check "interface", "No action is needed. To keep that HCA only for TCP, set the key `default-route-hca` to `skip`.";
    /// A port is skipped because it is not ACTIVE: it has no link, or the subnet manager has not
    /// activated it.
    PortDown = "port-down", check "port", "Check the cable, the switch port, `rdma link` on the node and, on InfiniBand, the subnet manager. A note says if the job has enough ports without it.";
    /// The container may not open the uverbs node of an HCA.
    UverbsDenied = "uverbs-denied", check "uverbs", "Request the device through the RDMA device plugin (Docker: `--device /dev/infiniband`), and check the mode of the node if the container does not run as root.";
    /// The driver of the Alibaba Cloud eRDMA device is in its iWARP mode, which NCCL cannot use.
    ErdmaIwarp = "erdma-iwarp", check "device", "Load the driver on the node in its compat or ofed mode.";
    /// An HCA uses iWARP, which NCCL cannot use.
    Iwarp = "iwarp", check "device", "If the NIC supports RoCE, switch the driver to it.";
    /// A device is not a channel adapter, its link layer is neither InfiniBand nor Ethernet, or it is a part of a Gaudi
    /// accelerator, so NCCL's own transport cannot use it.
    UnknownDevice = "unknown-device", check "device", "If this is a new kind of fabric, install the net plugin that it needs.";
    /// The job uses HCAs that connect, or may connect, to the machine's NVSwitches and to no
    /// network: `NCCL_IB_HCA` names them, or rdma-init cannot identify them for certain. HGX B200
    /// and B300 have such HCAs: InfiniBand, ACTIVE, and with `SMDL=SW_MNG` in their VPD, which only
    /// root can read.
    NvswitchHca = "nvswitch-hca", check "device", blocks Fabric, "Name only the other HCAs in `NCCL_IB_HCA`; or remove it: rdma-init then skips the HCAs that certainly connect to NVSwitches.";
    /// The ports in use have different rates, and the slowest slows all of them down.
    RatesDiffer = "rates-differ", check "rate", "If the odd one is for storage or TCP, name the others in `NCCL_IB_HCA`; otherwise check its cable and port.";
    /// `NCCL_IB_HCA` selects InfiniBand and RoCE, and one cannot connect to the other.
    MixedLinkLayers = "mixed-link-layers", check "device", "Name HCAs of one link layer in `NCCL_IB_HCA`.";
    /// More ports are usable than this release of NCCL takes.
    TooManyHcas = "too-many-hcas", check "device", "Name the HCAs that are near the GPUs in `NCCL_IB_HCA`, or use NCCL 2.19 or later, which takes 32.";
    /// The published value of `NCCL_IB_HCA` does not select the HCAs to use here.
    PublishedHcasDiffer = "published-hcas-differ", check "device", "No action is needed: rdma-init sets the exact list of the HCAs instead.";
    /// `NCCL_IB_HCA` uses some of the usable HCAs, and leaves others idle.
    IdleHcas = "idle-hcas", check "unused", "Remove `NCCL_IB_HCA`: rdma-init then fills in all of them. Keep it if the others are for something else.";
    /// `NCCL_IB_HCA` takes HCAs that Kubernetes has not given to this Pod, and that another Pod may hold.
    /// A privileged container sees all HCAs of its node.
    ForeignHcas = "foreign-hcas", check "count", "Name only the Pod's own HCAs in `NCCL_IB_HCA`; or remove it: rdma-init then fills in the names of these.";
    /// `NCCL_IB_HCA` names an HCA that this container does not have.
    StaleHca = "stale-hca", check "variables", "Remove `NCCL_IB_HCA`, or name HCAs that are here.";

    // GIDs, addresses and routes of the rails.

    /// A RoCE port has no RoCE v2 GID with an address of this container at an index that a
    /// connection can use (0 to 255). A note: the job uses the GIDs of the node.
    NoOwnGid = "no-own-gid", check "gid", blocks Connection, "Give the container an address on each RoCE interface (the network plugin's annotation for RDMA), or use the host's network (Docker: `--network host`; Kubernetes: `hostNetwork: true`).";
    /// A GID setting of yours (`NCCL_IB_GID_INDEX`, or a variable for NCCL's search) selects a
    /// wrong GID on an HCA.
    GidIndex = "gid-index", check "gid", blocks Connection, "Remove the variable that the finding names: the right index is then used.";
    /// The GID tables have changed since the container started, for example because a link went
    /// down or an address was renewed. What rdma-init filled in then makes NCCL or another library
    /// use a wrong GID now; or, while the command runs, the GID that NCCL uses has moved or is gone.
    GidChanged = "gid-changed", check "gid", blocks Connection, "Restart the container: rdma-init then decides again. You can start a process before that with the index that the finding names.";
    /// With a variable that you set, NCCL's own search for a GID fails on this host.
    GidSearch = "gid-search", check "gid", blocks Job, "Remove the variable that the finding names: the right index is then used.";
    /// No single GID index is right for every HCA, and NCCL does not find the right one on each by
    /// itself. HCAs for which the chosen index is wrong cannot be used.
    GidSlotsDiffer = "gid-slots-differ", check "gid", "Use NCCL 2.21 or later, which searches for the index on each HCA; or give each RoCE interface the same number of addresses.";
    /// `NCCL_IB_ADDR_RANGE` is not one range, so NCCL ignores it, reads a part of it, or crashes on it.
    AddrRange = "addr-range", check "gid", blocks Job, "Write one range, such as `10.0.0.0/8`, of the family that `NCCL_IB_ADDR_FAMILY` names; or remove it.";
    /// The value of `NCCL_SOCKET_FAMILY` or `NCCL_IB_ADDR_FAMILY` is not spelled as NCCL spells it,
    /// so NCCL ignores it.
    AddressFamily = "address-family", check "gid", "Write `AF_INET` or `AF_INET6`, in capitals; or remove the variable.";
    /// The GID index that the platform publishes is not right for every HCA of this container.
    PublishedGidDiffers = "published-gid-differs", check "gid", "No action is needed: the finding says what rdma-init sets instead.";
    /// On InfiniBand, the partition key that NCCL will use is empty, or is the key of a limited
    /// member. Two limited members cannot communicate.
    Pkey = "pkey", check "pkey", blocks Connection, "Set `NCCL_IB_PKEY` to an index at which every port is a full member. If there is none, ask the administrator of the subnet manager for full membership.";
    /// The host's administrator has set a traffic class on the job's RoCE ports, but a variable
    /// requests another one. The driver gives the administrator's class to each queue pair that the
    /// kernel connects; queue pairs that a library connects itself get the variable's class.
    TrafficClass = "traffic-class", check "traffic-class", "Remove the variable that the finding names. If its class is right for the network, ask the administrator to set it on the HCAs (`/sys/class/infiniband/HCA/tc/PORT/traffic_class`).";
    /// The host's administrator has not set the same traffic class on all RoCE ports of the job, so
    /// part of the traffic may be outside the network's lossless class.
    TrafficClassesDiffer = "traffic-classes-differ", check "traffic-class", "Ask the administrator to set one class on all ports of the job (`/sys/class/infiniband/HCA/tc/PORT/traffic_class`).";
    /// `NCCL_IB_TC` has the value that another platform publishes for its own network. A traffic class
    /// helps only if the switches have a lossless queue for it.
    ForeignTrafficClass = "foreign-traffic-class", check "variables", "Ask the administrator for the class of this network, or remove `NCCL_IB_TC`. If this is the network of that platform, choose its profile.";
    /// A RoCE port is skipped although its interface is in this container and up: the interface has
    /// no address that other nodes can reach, or the HCA has no GID for the address.
    NoAddress = "no-address", check "address", "Check what gives the interface its address: DHCP, or the network plugin and its IPAM. If only the GID is missing, compare `show_gids` with a node where it works.";
    /// The interfaces of the rails have different MTUs.
    MtuDiffers = "mtu-differs", check "mtu", "Set one MTU on all interfaces of the fabric, here and on the switches (4200 or more for RoCE with 4096).";
    /// The interface of an eRDMA device in use has an MTU at which NCCL's protocol LL128 corrupts data.
    ErdmaMtu = "erdma-mtu", check "mtu", "Set the MTU of the eRDMA interfaces to 8500 with jumbo frames, or to 1400 without them, on all nodes; or set `NCCL_PROTO=^LL128` on all of them.";
    /// No route goes out through the interface of an HCA in use, so its connections to other nodes
    /// may fail.
    NoRoute = "no-route", check "route", "Give the interface an address with the prefix length of its network, or a route to the other nodes' RoCE network.";
    /// Interfaces share a network, so the kernel may send or answer through the wrong one.
    OverlappingSubnets = "overlapping-subnets", check "route", "Give each interface its own network, or a separate routing table for its address (`ip rule`), with `arp_ignore=1` and `arp_announce=2`.";

    /// NCCL before 2.30.7 pairs the NICs of two nodes by their order, and another node may have other NICs: an ACTIVE
    /// port here has no address of a network.
    RailOrder = "rail-order", check "route", "Name in `NCCL_IB_HCA` only NICs that all nodes have in the same networks and in the same order, or use NCCL 2.30.7 or later.";

    // The interface over which the processes find each other.

    /// `NCCL_SOCKET_IFNAME` matches no interface that NCCL accepts, so NCCL will fail.
    StaleInterface = "stale-interface", check "interface", "Remove `NCCL_SOCKET_IFNAME`, or name an interface that is up and has an address.";
    /// No route shows which interface reaches the other nodes, so `NCCL_SOCKET_IFNAME` stays unset.
    NoInterface = "no-interface", check "interface", "Set `NCCL_SOCKET_IFNAME` to the interface through which the nodes reach each other.";
    /// NCCL will bootstrap on, or send data over, an interface that no other node can reach, such as `lo`, `docker0`, or
    /// one with a link-local address.
    LocalInterface = "local-interface", check "interface", "Set `NCCL_SOCKET_IFNAME` to the interface through which the nodes reach each other; remove `NCCL_COMM_ID` if it is the cause.";
    /// NCCL will bootstrap on an interface that is not UP and RUNNING, so no other node can reach
    /// it.
    InterfaceDown = "interface-down", check "interface", "Bring the interface up, or name another in `NCCL_SOCKET_IFNAME`.";
    /// The profile expects RDMA through an interface that is missing, down, or without an address.
    InterfaceMissing = "interface-missing", check "interface", "Follow the finding's fix: it is what the platform publishes.";
    /// With a prefix or an exclusion in `NCCL_SOCKET_IFNAME`, NCCL will bootstrap on the interface
    /// of a RoCE port of the job, so that other nodes may not reach it.
    BootstrapOnRail = "bootstrap-on-rail", check "interface", "Write the whole name of the right interface after `=`, or remove `NCCL_SOCKET_IFNAME`: rdma-init then fills it in.";
    /// NCCL will bootstrap on a wireless interface, although the job's HCAs have interfaces with
    /// addresses.
    WirelessBootstrap = "wireless-bootstrap", check "interface", "If the nodes reach each other over the cables, set `NCCL_SOCKET_IFNAME` to one of those interfaces.";
    /// `NCCL_COMM_ID` is not an address with a port, or makes NCCL take the wrong interface or none.
    CommId = "comm-id", check "interface", "Remove `NCCL_COMM_ID`: torchrun and MPI do not need it.";
    /// The published value of `NCCL_SOCKET_IFNAME` is not the interface to use here.
    PublishedInterfaceDiffers = "published-interface-differs", check "interface", "No action is needed: rdma-init sets another value instead.";

    // What the platform's profile asks for.

    /// The release of NCCL in the image is older than the platform asks for.
    NcclTooOld = "nccl-too-old", check "nccl", "Use an image with a later NCCL.";
    /// The job has several nodes with GPUs, and if it hangs, nothing can say which rank has stopped: NCCL's
    /// RAS, PyTorch's Flight Recorder and NCCL's profiler plugins, such as its Inspector, are all off.
    NoHangDiagnosis = "no-hang-diagnosis", check "nccl", "Remove `NCCL_RAS_ENABLE`, or use NCCL 2.24 or later, which has RAS. Or turn on PyTorch's Flight Recorder: `TORCH_FR_BUFFER_SIZE=2000`.";
    /// The release of CUDA in the image is older than the platform asks for.
    CudaTooOld = "cuda-too-old", check "cuda", "Use an image with a later CUDA.";
    /// The platform has RDMA only for other numbers of GPUs than this container has. Where there are exceptions and
    /// only an interface's name shows the fabric, a job of several nodes gets a warning, and `require-rdma` refuses.
    CardCount = "card-count", check "count", blocks Fabric, "Request one of the numbers of GPUs that the finding names. If the container is an exception, name the profile.";
    /// The number of usable RDMA NICs is not the one that the platform publishes for the instance type, or that the
    /// Pod's resource claims hold. Or equal HCAs are one short of the same number for each GPU.
    NicCount = "nic-count", check "count", "Check that the container has all RDMA devices of the instance, that each has its driver, and that their ports are ACTIVE.";
    /// The Pod has been given HCAs that the job leaves idle, because HCAs of another link layer have more
    /// bandwidth. A privileged container sees those, too, and another Pod may hold them.
    GivenHcasIdle = "given-hcas-idle", check "count", "If the HCAs in use are not rails of this Pod, name its own HCAs in `NCCL_IB_HCA`.";
    /// The Pod's resource claims hold one HCA for several GPUs, and the job leaves the others of the machine alone.
    /// That HCA may be for storage.
    OneHcaClaimed = "one-hca-claimed", check "count", "If the HCA is for storage, claim the rails, too, or name them in `NCCL_IB_HCA`.";
    /// Kubernetes has given this container devices that do not exist here (`PCIDEVICE_*`,
    /// `SRIOVNETWORK_VF_DEVICE_*`, or resource claims).
    GivenDeviceMissing = "given-device-missing", check "count", "Check the device on the node (`lspci`), and that its driver is loaded; then create the Pod again. If each Pod has a virtual machine (Kata), the addresses are those of the node, and no action is needed.";
    /// A script of the platform sets NCCL's variables on this machine, and it has not run: neither its
    /// variables nor the command line show it. Or only a part of its variables is set.
    ScriptNotSourced = "script-not-sourced", check "variables", "Source the script before the command, or start rdma-init from a shell that has sourced it. If the command itself does that, no action is needed.";
    /// The profile takes a value from a variable of the platform, and that value cannot be right: it is out
    /// of range, or not a number.
    PlatformValue = "platform-value", check "variables", "Correct the platform's variable that the finding names, or set NCCL's variable yourself.";
    /// The key `instance-type` names a type for which the profile publishes no number of NICs, so their
    /// number is not compared with that of the type.
    UnknownInstanceType = "unknown-instance-type", check "variables", "Write the type as the profile has it (`rdma-init profiles NAME`), or remove the key.";
    /// A part of your own profile has no effect: a value for a variable that its key `hands-off` names,
    /// too, or a companion that rdma-init does not know.
    IdleInProfile = "idle-in-profile", check "variables", "Remove that part from the profile.";
    /// Several profiles fit this host and have the same priority, so their names decide.
    EqualProfiles = "equal-profiles", check "variables", "Give the right profile a higher `priority`, or name it with the key `profile`.";
    /// A value that you set differs from the published one, or the platform leaves the variable
    /// unset or no longer advises the value. Your value stays.
    NotAsPublished = "not-as-published", check "variables", "If this is intentional, no action is needed.";

    // What the image has.

    /// A program or a library of the job is for another processor architecture than rdma-init:
    /// the image mixes x86-64 and arm64.
    OtherArchitecture = "other-architecture", check "nccl", blocks Fabric, "Build the whole image for the architecture of the node (`docker build --platform`), and copy the rdma-init of that architecture into it.";
    /// The image has no libibverbs that NCCL can load, so the job runs on TCP.
    NoLibibverbs = "no-libibverbs", check "libibverbs", "Install libibverbs1 and ibverbs-providers (Debian, Ubuntu), or rdma-core and libibverbs, in the image.";
    /// libibverbs has no provider for an HCA in the image, or cannot load it, so NCCL does
    /// not see the HCA.
    NoProvider = "no-provider", check "provider", "Install ibverbs-providers from the same rdma-core as libibverbs, with its files in `/etc/libibverbs.d`.";
    /// The HCA's provider in the image does not support the ABI of the node's kernel driver, so
    /// libibverbs skips the HCA, and NCCL does not see it.
    ProviderKernelAbi = "provider-kernel-abi", check "provider", "Install in the image the provider that matches the node's driver: the vendor's package if the node has the vendor's driver (Broadcom's libbnxt_re, AMD's libionic1), otherwise ibverbs-providers. Or mount the node's library over the one in the image.";
    /// The image has several releases of NCCL.
    NcclVersionsDiffer = "nccl-versions-differ", check "nccl", "Keep one of them: processes that load different releases cannot form one job.";
    /// The variable `NCCL_VERSION` names another NCCL release than the job loads. rdma-init decides
    /// for the one that the job loads.
    NcclVersion = "nccl-version", check "nccl", "If the job loads the release that you want, no action is needed.";
    /// A variable names a plugin that the dynamic loader does not find.
    PluginNotFound = "plugin-not-found", check "plugin", "Install the plugin, add its directory to `LD_LIBRARY_PATH`, or remove the variable.";
    /// NCCL loads an env plugin, whose answers replace the values of all variables. What rdma-init
    /// fills in and predicts applies only without it.
    EnvPlugin = "env-plugin", check "plugin", "If the plugin is intended, no action is needed. `NCCL_ENV_PLUGIN=none` disables it.";
    /// The devices need a net plugin, and NCCL will load none, so the job runs on TCP.
    NoPlugin = "no-plugin", check "plugin", "Install the plugin in the image (aws-ofi-nccl for EFA), name it in `NCCL_NET_PLUGIN` if its file is not libnccl-net.so, or remove the variable that keeps NCCL from loading it.";
    /// NCCL 2.19 and 2.20 load a tuner only if `NCCL_TUNER_PLUGIN` names it. The image has the tuner of
    /// aws-ofi-nccl, and nothing names it.
    TunerNotNamed = "tuner-not-named", check "plugin", "Set `NCCL_TUNER_PLUGIN=libnccl-ofi-tuner.so`, or use NCCL 2.21 or later.";
    /// GPUDirect RDMA is not available, so NCCL copies through host memory.
    NoGpudirect = "no-gpudirect", check "gpudirect", "Load nvidia_peermem on the node, or use NVIDIA's open kernel module with NCCL 2.13 or later.";
    /// C2C links connect the GPUs to their CPUs, but the NCCL release or a variable prevents NCCL
    /// from using GPUDirect RDMA over these links.
    C2cGpudirect = "c2c-gpudirect", check "gpudirect", "Use NCCL 2.27 or later, and leave `NCCL_NET_GDR_C2C` and `NCCL_NET_GDR_LEVEL` unset; with 2.26, set `NCCL_NET_GDR_C2C=1`.";
    /// The host has Data Direct functions of ConnectX-8, through which NCCL 2.27 and later reach
    /// the GPUs. This is not a fault.
    DataDirect = "data-direct", check "gpudirect", "No action is needed. If NCCL cannot register memory (`mlx5dv_reg_dmabuf_mr` in its log), or the job is slower than before, set `NCCL_IB_DATA_DIRECT=0` on all nodes.";
    /// The job's NICs have several ports, and NCCL 2.29.7 and later can continue over the others if the link of one
    /// fails, but may not: port failover is off by default. This is not a fault.
    PortFailover = "port-failover", check "nccl-decides", "Set `NCCL_IB_RESILIENCY_PORT_FAILOVER=1` on all nodes.";
    /// NCCL 2.24 or 2.25 cannot merge the ports of a PCI device into one NIC, and fails.
    NicFusion = "nic-fusion", check "nccl-decides", blocks Job, "Set `NCCL_NET_MERGE_LEVEL=LOC`, or use NCCL 2.26 or later.";
    /// NCCL merges HCAs of different NICs as if they were functions of one, because they are on one
    /// PCI bus, as in a virtual machine. A GPU can then no longer use only the nearest of these
    /// HCAs.
    NicsOfSeveralCards = "nics-of-several-cards", check "nccl-decides", "Set `NCCL_IB_MERGE_VFS=0` on all nodes.";

    // NVLink between nodes.

    /// The GPUs are made for an NVLink domain of several nodes, but the container has no usable
    /// IMEX channel. A job on several nodes of one domain then fails or uses the network, depending
    /// on the NCCL release.
    ImexChannel = "imex-channel", check "nvlink", "In Kubernetes, create a ComputeDomain for the job, and give its pods the domain's resource claim. Elsewhere, run nvidia-imex on the nodes, and give the container a channel: `--device /dev/nvidia-caps-imex-channels/channel0`. To disable NVLink between nodes, set `NCCL_MNNVL_ENABLE=0` on all of them.";
    /// The container has an IMEX channel, but a variable or the NCCL release prevents NCCL from
    /// using NVLink between nodes.
    NvlinkUnused = "nvlink-unused", check "nvlink", "Remove the variable that the finding names on all nodes, or use a later NCCL.";

    // Limits, and what could not be read.

    /// The memory that can be pinned is limited. With 8 MiB or less, RDMA fails; with more, a
    /// larger job fails. Or the kernel keeps memory for kexec handover (KHO), which cannot be pinned.
    Memlock = "memlock", check "memlock", blocks Memory, "Raise the limit (Docker: `--ulimit memlock=-1:-1`; Kubernetes: LimitMEMLOCK of the container runtime), or add the capability IPC_LOCK and run as root. For kexec handover, boot the node with `kho=off`.";
    /// `/dev/shm` has 64 MiB or less for several GPUs, so NCCL will run out of space there.
    SharedMemory = "shared-memory", check "shared-memory", "Docker: `--shm-size=16g` or `--ipc=host`. Kubernetes: an emptyDir with `medium: Memory` on `/dev/shm`.";
    /// rdma-init cannot read or use a file that it needs for a decision.
    Unreadable = "unreadable", check "readable", "Make it readable. `rdma-init inspect --json` lists all such files in `unreadable`.";
    /// PID 1 is a shell that does not forward signals, so the command does not notice when the
    /// container is stopped.
    ShellIsPid1 = "shell-is-pid-1", check "signals", "Write `exec` before rdma-init in the shell's command, or start it without a shell, with an `ENTRYPOINT` in JSON form.";
    /// RDMA was planned, but nothing has moved over the HCAs, in the first minutes of the command or until its end: the
    /// job ran on sockets, or on this node alone. Or, while the command runs, nothing moves any more: the job may have
    /// stalled.
    NoTraffic = "no-traffic", "In a stall, ask NCCL which rank is behind: `rdma-init status --ras`. Otherwise, start the job with `NCCL_DEBUG=INFO` and look for NET/IB or NET/Socket. `rdma-init self-test` tests the fabric.";
    /// Nothing moves over the HCAs while the command runs, and NCCL's RAS names the ranks that are dead, missing,
    /// failed or behind, or says that there are none.
    StoppedRanks = "stopped-ranks", "Look in the logs of these ranks first. `rdma-init status --ras` asks RAS again.";
    /// No node of the job moves data any more while the command runs, according to the watchers of all nodes.
    /// The finding names the nodes that stopped first, that do not answer, or whose ports counted errors.
    StalledJob = "stalled-job", "Look first in the logs of the nodes that the finding names. `rdma-init status --ras` asks NCCL which rank is behind.";
    /// Nothing moved over a few of the rails, while gigabytes moved over each of the others; or, while the
    /// command runs, a rail moves far less than the others, after it had moved as much.
    IdleRail = "idle-rail", "Start the job with `NCCL_DEBUG=INFO` and look for the HCA in the lines with NET/IB; `rdma-init preflight` tests each rail between the nodes. If the job did not use all GPUs, this is not a fault.";
    /// The link of a port of the job went down while the command ran, or the port is no longer active. Or its device is
    /// gone, was gone, has another name now, or cannot be read.
    LinkDown = "link-down", "For a link, check the cable, the transceiver and the switch's port. For a device, look for its driver, its firmware and the PCI bus in the kernel's log (`dmesg` on the host), which also has the times.";
    /// The link of a port has become slower while the command ran: it has fewer lanes, or a lower speed.
    SlowLink = "slow-link", "Check the cable, the transceiver and the switch's port: lanes may have failed.";
    /// Queue pairs failed while the command ran, because the peer did not answer or was not ready.
    /// NCCL reports it as error 12 or 13. If this command failed, or another node's, it may be the
    /// consequence.
    EndedQueuePairs = "ended-queue-pairs", "Look in the other nodes' logs for a process that failed first. If none did, check the links between the nodes: `link-down` and `link-errors` of other nodes, and the switches.";
    /// The link of a port had errors while the command ran, more often than a good cable has.
    LinkErrors = "link-errors", "Check the cable, the transceiver and the switch's port.";
    /// Packets were lost or sent again while the command ran, at a rate that costs throughput: no acknowledgement came
    /// in time, the peer missed a packet or was not ready, or packets arrived out of order.
    LostPackets = "lost-packets", "Compare the port with the others (`rdma-init stat --format prometheus`), and check the network for loss: on RoCE, the lossless class (`NCCL_IB_TC`) and the switches' buffers.";

    // Where the job meets.

    /// `MASTER_ADDR` points to loopback, but this is not the first node of the job; or it is a
    /// loopback address on the first of several nodes.
    MasterLoopback = "master-loopback", check "interface", "Set `MASTER_ADDR` to an address of the first node, or to a name that resolves to it on each node.";
    /// `/etc/hosts` does not contain the name in `MASTER_ADDR`, and DNS does not know it yet or did
    /// not answer within a second.
    MasterUnknown = "master-unknown", check "interface", "If the first node is still starting, do nothing. Otherwise correct the name, or create its DNS entry: in Kubernetes, a headless Service.";

    /// vLLM, SGLang, Mooncake or Ray gives other nodes an address of this one at which they cannot
    /// reach it: a loopback address, one that no interface here has, or possibly one in another
    /// network than NCCL's bootstrap.
    NodeAddress = "node-address", check "libraries", "Remove the variable that the finding names: rdma-init fills in the right address if it is needed. Start Ray with `--node-ip-address`, because no variable gives it an address.";

    // Libraries other than NCCL.

    /// A variable names no existing interface, in the syntax of the library that reads it: Gloo and
    /// TensorPipe support neither prefixes nor NCCL's signs `^` and `=`.
    LibraryInterface = "library-interface", check "libraries", "Write the whole name of the interface, or remove the variable: rdma-init then fills it in if it is needed.";
    /// A library's list names devices that do not exist here, or in a wrong spelling; or it lacks
    /// something that the library needs.
    LibraryDevices = "library-devices", check "libraries", "Remove the variable, or write what the finding's fix says.";
    /// A library takes a GID that has no address of this container, because of a variable, or because
    /// no single index is right for all HCAs.
    LibraryGid = "library-gid", check "libraries", "Remove the variable that the finding names: rdma-init then fills in the right value.";
    /// A library uses TCP although there are usable HCAs: a variable requests it, or a package
    /// includes its own libibverbs, which has no driver for these HCAs.
    LibraryOnTcp = "library-on-tcp", check "libraries", "Remove the variable, unless this is intended. Rebuild a package with its own libibverbs in the image.";
    /// The library does not know the value of its variable.
    LibraryValue = "library-value", check "libraries", "Write what the finding's fix says, or remove the variable.";
    /// A library will bootstrap on loopback: a variable requests it, or the host's own name
    /// resolves to it and rdma-init could fill in nothing; or the name in MASTER_ADDR resolves to
    /// it.
    LibraryLoopback = "library-loopback", check "libraries", "Name the interface through which the nodes reach each other. On a single node, no action is needed.";

    /// The image has several releases of a library other than NCCL, or several packages of it.
    LibraryVersionsDiffer = "library-versions-differ", check "libraries", "Keep one of them. `rdma-init inspect` shows all of them.";
    /// Libraries of a package are missing, although pip has recorded it as installed.
    LibraryBroken = "library-broken", check "libraries", "Reinstall the package: `pip install --force-reinstall --no-deps NAME==VERSION`.";

    /// The image has a release of a library with a known fault that a job on this host can meet.
    FaultyRelease = "faulty-release", check "libraries", "Use the release that the finding names.";

    /// vLLM's map of GPUs to NICs does not fit this host, or the release of vLLM in the image.
    VllmMapping = "vllm-mapping", check "libraries", "Remove `VLLM_GPU_NIC_PCIE_MAPPING` and `VLLM_NIC_SELECTION_VARS`: rdma-init fills them in if they are needed.";
    /// vLLM's list of the variables that Ray's workers do not get from the driver is not a JSON
    /// list.
    VllmNodeList = "vllm-node-list", check "libraries", "Make it a list of names, or remove it: rdma-init writes it at the next start.";

    // Variables and files of the user.

    /// `NCCL_NET` names a network that NCCL will not find here, so NCCL will fail.
    NoNetwork = "no-network", check "nccl-decides", "Remove `NCCL_NET`, or name `IB`, `Socket`, or the network of a net plugin in the image. If it is `IB`, the other findings say why no HCA can be used; on EFA, it is `AWS Libfabric`.";
    /// `NCCL_NET` makes the job run on TCP although there are usable HCAs.
    RunsOnTcp = "runs-on-tcp", check "nccl-decides", "Remove `NCCL_NET`, unless this is intended.";
    /// A variable (`NCCL_NET`, `NCCL_GRAPH_FILE`, `NCCL_NET_PLUGIN`) is set but empty, which NCCL
    /// does not treat as unset: it fails, or loads no net plugin.
    EmptyValue = "empty-value", check "nccl-decides", blocks Job, "Remove the variable. (An empty `NCCL_NET_PLUGIN` may be intended.)";
    /// `NCCL_CONF_FILE` names a file that NCCL cannot read, and NCCL then does not read the one in
    /// the home directory either.
    ConfFile = "conf-file", check "variables", "Write the whole path of a file: NCCL expands neither `~` nor variables in it.";
    /// A line of nccl.conf sets nothing, stands below rdma-init's block, which has the variable, too,
    /// or NCCL takes spaces, quotes, a comment, or a Windows line ending as part of the name or the
    /// value.
    ConfLine = "conf-line", check "variables", "Write `NAME=VALUE`, with no space, quote or comment, with Unix line endings, and above rdma-init's block.";
    /// `NCCL_DEBUG` is not a level that NCCL knows, so NCCL logs nothing.
    DebugLevel = "debug-level", check "variables", "Write VERSION, WARN, INFO or TRACE.";
    /// The time that an HCA waits for an answer with your value of `NCCL_IB_TIMEOUT`, and how often
    /// it retries.
    IbTimeout = "ib-timeout", check "variables", "No action is needed. Remove the variable to use NCCL's own value.";
    /// `require-rdma` is set, and your `NCCL_IGNORE_NET_MISMATCH` hides it if a node has fewer NICs than
    /// the others.
    IgnoredMismatch = "ignored-mismatch", check "variables", "Remove `NCCL_IGNORE_NET_MISMATCH`: rdma-init then sets 0, and such a node is an error.";
    /// A variable's name suggests that it holds a secret. rdma-init neither shows nor writes its
    /// value, so processes that enter the container later do not get it.
    KeptBack = "kept-back", check "variables", "No action is needed. Pass the value to those processes yourself.";
    /// `NCCL_NET_GDR_LEVEL` or `NCCL_P2P_LEVEL` is not a level that NCCL knows, so NCCL ignores it.
    Level = "level", check "variables", "Write one of the levels that the finding names, in capitals, or remove the variable.";
    /// A list contains spaces, semicolons or quotes, which NCCL takes as part of a name.
    ListSeparator = "list-separator", check "variables", "Separate the names only by commas.";
    /// A list has more names than NCCL reads: NCCL ignores the last ones.
    ListTooLong = "list-too-long", check "variables", "Name a prefix that the names share.";
    /// A variable names a file that cannot be opened.
    MissingFile = "missing-file", check "variables", blocks Job, "Mount the file into the container, write its whole path, let the job's user read it, or remove the variable.";
    /// Neither NCCL nor another library reads a variable of this name, but one has a very similar
    /// name.
    MisspeltVariable = "misspelt-variable", check "variables", "Write the name that the finding gives, or remove the variable.";
    /// A value cannot be written into nccl.conf: it is longer than NCCL reads, or has a line break.
    NcclConfValue = "nccl-conf-value", check "variables", "Start processes that enter the container with `rdma-init exec`. If rdma-init filled in the variable, a shell can also read `/run/rdma-init/env.sh`.";
    /// rdma-init cannot write the variables to `/etc/nccl.conf`, or to RCCL's file, so processes
    /// that enter the container later do not find them there.
    NcclConfNotWritten = "nccl-conf-not-written", "Start processes that enter the container with `rdma-init exec`, or follow the finding's fix. A start without root cannot write to `/etc`.";
    /// NCCL reads the value as a number, but not as the number that the text seems to say.
    NotANumber = "not-a-number", check "variables", "Write only the number, without a leading 0, or remove the variable.";
    /// NCCL ignores a `NCCL_SOCKET_IFNAME` of one character, and chooses the interface itself.
    OneCharacter = "one-character", check "variables", "Write the whole name of the interface; if that is one character, with `=` before it.";
    /// A number is outside the range that NCCL or the hardware accepts.
    OutOfRange = "out-of-range", check "variables", blocks Job, "Set a value in the range, or remove the variable.";
    /// A name in a list is also the beginning of other names here, so the list selects more
    /// than it names.
    PrefixMatch = "prefix-match", check "variables", "Write `=` before the list, for exact names.";
    /// `^` or `=` stands before a later name of a list, and NCCL takes it as part of the name.
    RepeatedSign = "repeated-sign", check "variables", "Write the signs once, at the start: they apply to the whole list.";
    /// The variable has an old name, which NCCL still reads if the new one is not set.
    RetiredName = "retired-name", check "variables", "Write the new name, which the finding gives.";
    /// A value for debugging slows down every job that keeps it. Published values are not reported.
    SlowValue = "slow-value", check "variables", "Remove the variable, unless the condition in the finding applies to your job.";
    /// The number of bits by which NCCL distinguishes subnets does not fit the rails' subnets.
    SubnetPrefix = "subnet-prefix", check "variables", "Set `NCCL_IB_SUBNET_PREFIX_LEN` to the prefix length of the rails.";
    /// NCCL accepts only 1 as a yes in this variable, but the value is another number.
    SwitchValue = "switch-value", check "variables", "Write 1, or remove the variable.";
    /// `NCCL_ALGO` or `NCCL_PROTO` contains a word that NCCL does not know. NCCL 2.24 and later
    /// fail on that.
    TuningList = "tuning-list", check "variables", blocks Job, "Write words that the finding names, separated by commas.";
    /// `NCCL_NETDEVS_POLICY` is not a policy that NCCL knows, so NCCL uses its default.
    UnknownPolicy = "unknown-policy", check "variables", "Write AUTO, ALL, or MAX: with a number behind it.";
    /// No release of NCCL that rdma-init knows reads a variable of this name.
    UnknownVariable = "unknown-variable", check "variables", "If a net plugin reads it, no action is needed. Otherwise remove it.";
    /// The environment contains a name that no shell can set. The command gets it unchanged, but
    /// processes that enter the container later do not.
    VariableName = "variable-name", check "variables", "Write the name with only letters, digits and `_`, not starting with a digit; or remove it.";
    /// The release of NCCL in the image does not read the variable yet, or no longer does.
    VariableOfOtherRelease = "variable-of-other-release", check "variables", "Remove it, or follow the finding's fix: use another variable, or another NCCL.";
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
