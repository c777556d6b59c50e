//! All texts of the plan: why a variable has its value, what was tried, and why a port is not used.

mod env_plugin;
pub(crate) mod libraries;
mod uverbs;

use std::fmt;

pub(crate) use uverbs::uverbs_nodes;

use super::rule::{
    NcclKnowledge, NoRdmaReason, NotLeftToNccl, NotTaken, OfProfile, Published, Rule, RuleEvidence,
    SearchEnd, Sign, Trial,
};
use crate::fabric::interface::{Because, InterfaceSearch, Master, Obstacle};
use crate::fabric::{NvSwitch, SkipReason, WhichRoute};
use crate::facts::gid::Gid;
use crate::image::flavor::Flavor;
use crate::libraries::nccl::gid::INDEX;
use crate::libraries::nccl::version::{READS_GIDS_FIRST, Version};
use crate::libraries::traffic_class::dscp;
use crate::text::{condensed, counted};

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.write(f, Flavor::Nccl)
    }
}

impl Rule {
    fn write(&self, f: &mut fmt::Formatter, library: Flavor) -> fmt::Result {
        match self {
            Rule::AsWritten(text) => f.write_str(text),
            Rule::OfRccl(rule) => rule.write(f, Flavor::Rccl),
            Rule::OfVariable(source, rule) => {
                write!(f, "the platform's {source}: ")?;
                rule.write(f, library)
            }
            Rule::SetByUser => f.write_str("set by the user"),
            Rule::Keep => f.write_str("not to be filled in (keep)"),
            Rule::Published => f.write_str("published"),
            Rule::PublishedAsUnset => f.write_str("the platform says to leave it unset"),
            Rule::PublishedHcas => f.write_str("published, and it selects exactly the HCAs to use"),
            Rule::PublishedInterface(choice) => {
                write!(f, "published, and {} {}", choice.name, because(choice.because))
            }
            Rule::PublishedInterfaceIsThere => {
                f.write_str("published, and an interface here has this name; no route shows a better one")
            }
            Rule::UsableHcas { used, of } if used == of => write!(f, "every HCA is usable ({used})"),
            Rule::UsableHcas { used, of } => write!(f, "the usable HCAs ({used} of {of} ports)"),
            Rule::HeldHcas(others) => write!(
                f,
                "the Pod's own HCAs, whose links are down; without it, {library} would use {}, which may belong to other Pods",
                condensed(others)
            ),
            Rule::AvoidsSkippedPorts(ports) => {
                write!(f, "without it, {library} would take {}, which the job skips", condensed(ports))
            }
            Rule::AvoidsFailingPorts(ports) => write!(
                f,
                "without it, {library} would take {}, and fail at the first connection",
                condensed(ports)
            ),
            Rule::MostCommonSlot { agreeing, of } => f.write_str(&most_common(*agreeing, *of)),
            Rule::SearchFinds { releases, slot: Some(slot) } => {
                // Later releases do not search again for a connection.
                let when = match releases.last().is_some_and(|release| *release >= READS_GIDS_FIRST) {
                    true => ", also after a change of the table",
                    false => " at each connection",
                };
                let find = find(library, releases);
                write!(f, "{find} the right GID index{when}, now index {slot} of every HCA")
            }
            Rule::SearchFinds { releases, slot: None } => {
                write!(
                    f,
                    "the right GID index differs between HCAs, and {} it on each",
                    find(library, releases)
                )
            }
            Rule::NoCommonIndex => f.write_str("no GID index is right on every HCA"),
            Rule::Interface(why) => f.write_str(&because(*why)),
            Rule::ClassOfPorts => write!(
                f,
                "the traffic class of the HCAs, for the queue pairs that {library} connects itself (GIN)"
            ),
            Rule::FallbackIsAnError => write!(
                f,
                "what {library} will use; with its name, a fallback to TCP is an error, as require-rdma demands"
            ),
            Rule::MismatchIsAnError => {
                f.write_str("a node with fewer NICs than the others is an error, as require-rdma demands")
            }
            Rule::SubnetPerNic(bits) => write!(
                f,
                "each NIC has a subnet of its own (/{bits}), so that {library} takes the one in the peer's subnet"
            ),
            Rule::Follows(profile) => write!(f, "follows {library}'s variable, as profile {profile} asks"),
            Rule::FillsForLibrary(_, why) => why.write(f, library),
        }
    }
}

impl fmt::Display for RuleEvidence {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            RuleEvidence::Used { port, link_layer, rate } => {
                write!(f, "{port} ACTIVE, {}, {rate}", String::from(link_layer.clone()))
            }
            RuleEvidence::LeftOut { port, reason } => write!(f, "{port} skipped: {}", left_out(reason)),
            RuleEvidence::NearGpu { gpu, hcas } => {
                let near: Vec<String> =
                    hcas.iter().map(|(hca, distance)| format!("{hca} {}", distance.word())).collect();
                write!(f, "GPU {gpu}: {}", near.join(", "))
            }
            RuleEvidence::Slot { port, gid } => {
                write!(f, "{port} GID index {}: {}, RoCE v2", gid.index, address(gid))
            }
            RuleEvidence::TrafficClass { port, class } => {
                write!(f, "{port} Global tclass={class} (DSCP {})", dscp(*class))
            }
        }
    }
}

impl Trial {
    /// Returns what was tried.
    pub fn rule(&self, library: Flavor) -> String {
        match self {
            Trial::Interface(InterfaceSearch::ToMaster, _) => {
                "the interface of the route to MASTER_ADDR".to_owned()
            }
            Trial::Interface(InterfaceSearch::DefaultRoute, _) => {
                "the interface of the default route".to_owned()
            }
            Trial::Interface(InterfaceSearch::Only, _) => because(Because::Only),
            Trial::PublishedInterface(name) => {
                format!("the published {name}, if it selects exactly that interface")
            }
            Trial::SeveralNics(_) => {
                format!("leave it unset, if {library} by itself takes several NICs, and the right one first")
            }
            Trial::Claims(_) => "only the HCAs that the Pod's resource claims hold".to_owned(),
            Trial::Given(_) => {
                "only the HCAs that the Pod was given (PCIDEVICE_*, SRIOVNETWORK_VF_DEVICE_*)".to_owned()
            }
            Trial::NearHcas(_) => {
                "only the HCAs that are near a GPU (PIX or PXB), as every GPU has one".to_owned()
            }
            Trial::OneSubnet { rails, .. } => {
                format!("only the HCAs of the InfiniBand subnet {rails}, which has enough for the GPUs")
            }
            Trial::OneRate { rails, .. } => {
                format!("only the HCAs of {rails}, of which there are enough for the GPUs")
            }
            Trial::DefaultRoute { .. } => {
                "without the HCAs that carry a default route, unless they are rails".to_owned()
            }
            Trial::OwnProfile { profile, .. } => format!("only the HCAs that your profile {profile} names"),
            Trial::PublishedHcas { list, .. } => {
                format!("the published {list}, if it selects exactly the HCAs to use")
            }
            Trial::NamesOfHcas(_) => "the whole names of the HCAs to use".to_owned(),
            Trial::PublishedSlot { index, .. } => {
                format!("the published {index}, if it is right on every HCA")
            }
            Trial::NotLeftToNccl(_) => {
                format!("leave it unset, so that {library} finds the index by itself")
            }
            Trial::CommonSlot(_) => "the lowest GID index that is right on every HCA".to_owned(),
            Trial::Search { version, range, .. } => {
                let range =
                    range.map_or("without a range".to_owned(), |range| format!("with the range {range}"));
                format!("leave it unset: the search of {library} {version} {range}")
            }
            Trial::MostCommonSlot { agreeing, of, .. } => most_common(*agreeing, *of),
            Trial::OtherSlot { index, gids, why } => {
                let right = match why {
                    NotTaken::RightOnSome { right, of } => format!("on {right} of {of} HCAs"),
                    NotTaken::OfTwoFamilies => "on every HCA, IPv4 on some and IPv6 on others".to_owned(),
                    NotTaken::OfIpv6 | NotTaken::Published(_) | NotTaken::Higher(_) => {
                        "also on every HCA".to_owned()
                    }
                };
                format!("index {index}, which is right {right} ({})", addresses(gids))
            }
            Trial::OtherSlotOfPort { port, gid, .. } => {
                format!("index {} of {port}, which is also right ({})", gid.index, address(gid))
            }
        }
    }

    /// Returns the result.
    pub fn result(&self, library: Flavor) -> String {
        match self {
            Trial::Interface(_, Some(name)) => name.clone(),
            Trial::Interface(_, None) | Trial::CommonSlot(None) => "there is none".to_owned(),
            Trial::PublishedInterface(_) | Trial::PublishedHcas { fits: false, .. } => {
                "it does not".to_owned()
            }
            Trial::PublishedHcas { fits: true, .. } => "it does".to_owned(),
            Trial::SeveralNics(names) => format!("it takes {}", condensed(names)),
            Trial::Claims(left_out)
            | Trial::Given(left_out)
            | Trial::NearHcas(left_out)
            | Trial::OwnProfile { left_out, .. }
            | Trial::OneSubnet { left_out, .. }
            | Trial::OneRate { left_out, .. } => {
                format!("skips {}", condensed(left_out))
            }
            Trial::DefaultRoute { left_out, kept } => {
                let named = [("skips", left_out), ("keeps", kept)].into_iter();
                let named = named.filter(|(_, names)| !names.is_empty());
                let named: Vec<String> =
                    named.map(|(what, names)| format!("{what} {}", condensed(names))).collect();
                named.join(", ")
            }
            Trial::NamesOfHcas(list) => list.clone(),
            Trial::PublishedSlot { is_right: true, .. } => "it is".to_owned(),
            Trial::PublishedSlot { is_right: false, .. } => "it is not".to_owned(),
            Trial::NotLeftToNccl(why) => why.words(library),
            Trial::CommonSlot(Some(index)) | Trial::MostCommonSlot { index, .. } => {
                format!("index {index}")
            }
            Trial::Search { end: SearchEnd::Right, .. } => "it finds a right index on every HCA".to_owned(),
            Trial::Search { end: SearchEnd::WrongSlot { port, slot }, .. } => {
                format!("it finds index {slot} of {port}, which is wrong")
            }
            Trial::Search { end: SearchEnd::Fails { port, failure }, .. } => {
                format!("on {port} it {failure}")
            }
            Trial::OtherSlot { index, why, .. } => {
                let to_take_it = format!("; set {INDEX}={index} to take it");
                let why = match why {
                    NotTaken::RightOnSome { .. } => "one index applies to all HCAs".to_owned(),
                    NotTaken::OfTwoFamilies => "IPv4 and IPv6 cannot reach each other".to_owned(),
                    NotTaken::OfIpv6 => format!("IPv4 comes before IPv6{to_take_it}"),
                    NotTaken::Published(taken) => format!("index {taken} is published{to_take_it}"),
                    NotTaken::Higher(taken) => format!("index {taken} is lower{to_take_it}"),
                };
                format!("not used, because {why}")
            }
            Trial::OtherSlotOfPort { end, .. } => {
                format!("not used, because the search finds index {} ({})", end.index, address(end))
            }
        }
    }
}

impl NotLeftToNccl {
    fn words(&self, library: Flavor) -> String {
        let only = format!("only {library} 2.26 and later are sure to find it after a change");
        match self {
            NotLeftToNccl::NotFound => format!("the job's {library} was not found in the image; {only}"),
            NotLeftToNccl::Unknown(path) => format!("the release of {} is unknown; {only}", path.display()),
            NotLeftToNccl::Older(release) => format!("the image has {library} {release}; {only}"),
            NotLeftToNccl::Plugin(file) => format!("the net plugin {file} may not search"),
            NotLeftToNccl::Rccl => format!("the search of {} may differ", Flavor::Rccl),
        }
    }
}

impl fmt::Display for NoRdmaReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            NoRdmaReason::NoDevice => f.write_str("there is no RDMA device in this container"),
            NoRdmaReason::OtherNamespace(nodes) => f.write_str(&uverbs::elsewhere(nodes)),
            NoRdmaReason::Hidden { path, error } => {
                write!(f, "the RDMA devices cannot be seen ({}: {error})", path.display())
            }
            NoRdmaReason::NoneUsed(reasons) => {
                let said = |(reason, names): &(SkipReason, Vec<String>)| {
                    format!("{}: {}", condensed(names), left_out(reason))
                };
                let list: Vec<String> = reasons.iter().map(said).collect();
                write!(f, "no RDMA device here is used ({})", list.join("; "))
            }
            NoRdmaReason::NoDeviceForPlugin => f.write_str("no device for the net plugin is usable"),
            NoRdmaReason::NoInterfaceForPlugin(names) => {
                write!(f, "the net plugin needs {}, and none of them is up with an address", condensed(names))
            }
            NoRdmaReason::Interface(name, Obstacle::NotThere) => write!(f, "there is no interface {name}"),
            NoRdmaReason::Interface(name, obstacle) => write!(f, "the interface {name} {obstacle}"),
        }
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Sign::Hca { name, driver, more } => {
                let how = driver.as_ref().map_or("by name".to_owned(), |driver| format!("driver {driver}"));
                write!(f, "HCA {name} ({how})")?;
                if *more > 0 { write!(f, " and {more} more") } else { Ok(()) }
            }
            Sign::NoHca => f.write_str("no HCA"),
            Sign::LinkLayer(link_layer) => write!(f, "usable HCAs of link layer {link_layer}"),
            Sign::Interface(name) => write!(f, "interface {name}"),
            Sign::InterfaceUp(name) => write!(f, "interface {name} up"),
            Sign::Text { what, found } => write!(f, "{what} {found}"),
            Sign::InterfaceDriver { name, driver } => write!(f, "interface {name} (driver {driver})"),
            Sign::Variable(name) => write!(f, "variable {name}"),
            Sign::File(path) => f.write_str(path),
            Sign::ClaimedAttribute { name, value } => write!(f, "claimed device with {name} = {value}"),
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (name, what) = match self {
            Published::Keep => return f.write_str("the configuration says not to fill it in (keep)"),
            Published::NoProfile => return f.write_str("no profile is in use, so nothing is filled in"),
            Published::Profile(name, what) => (name, what),
        };
        write!(f, "profile {name} ")?;
        match what {
            OfProfile::Value(value) if value.is_empty() => f.write_str("publishes an empty value"),
            OfProfile::Value(value) => write!(f, "publishes {value}"),
            OfProfile::Only { value, conditions, counts } => {
                let value = if value.is_empty() { "an empty value" } else { value };
                let counts = if *counts { "which holds here" } else { "which does not hold here" };
                write!(f, "publishes {value} only if {}, {counts}", conditions.join(" and "))
            }
            OfProfile::FromVariable(source) => {
                write!(f, "gives it the value of the platform's variable {source}, if that is set")
            }
            OfProfile::Unset => f.write_str("says to leave it unset"),
            OfProfile::HandsOff => f.write_str("never sets it"),
            OfProfile::Companion => f.write_str("asks for it, to follow NCCL's variable"),
            OfProfile::Nothing => f.write_str("says nothing about it"),
        }
    }
}

impl fmt::Display for NcclKnowledge {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            NcclKnowledge::Never { similar } => {
                f.write_str("no NCCL up to 2.32 reads it")?;
                similar.iter().try_for_each(|name| write!(f, "; {name} has a similar name"))
            }
            NcclKnowledge::Read { since: None, until: None } => f.write_str("every NCCL reads it"),
            NcclKnowledge::Read { since: Some(since), until: None } => {
                write!(f, "NCCL {since} and later read it")
            }
            NcclKnowledge::Read { since: None, until: Some(until) } => {
                write!(f, "NCCL read it up to {until}")
            }
            NcclKnowledge::Read { since: Some(since), until: Some(until) } => {
                write!(f, "NCCL read it from {since} to {until}")
            }
        }
    }
}

/// Returns why a port is not used.
pub(crate) fn left_out(reason: &SkipReason) -> String {
    match reason {
        SkipReason::NotAllotted => {
            "not allotted to this container: no /dev/infiniband/uverbs node".to_owned()
        }
        SkipReason::NotClaimed => "the Pod's resource claims hold other HCAs".to_owned(),
        SkipReason::NotGiven => {
            "the Pod was given other HCAs (PCIDEVICE_*, SRIOVNETWORK_VF_DEVICE_*)".to_owned()
        }
        SkipReason::CannotBeOpened(error) => format!("the uverbs node cannot be opened: {error}"),
        SkipReason::PortState(state) if state.is_empty() => "the state of the port cannot be read".to_owned(),
        SkipReason::PortState(state) => format!("the port is {state}, not ACTIVE"),
        SkipReason::LinkLayer { link_layer, library } => {
            format!("{library} has no transport for the link layer {}", String::from(link_layer.clone()))
        }
        SkipReason::Iwarp { erdma: false, library } => {
            format!("it is an iWARP device, which {library} does not support")
        }
        SkipReason::Iwarp { erdma: true, library } => {
            format!("the erdma driver is in its iWARP mode, which {library} does not support")
        }
        SkipReason::NodeType(kind) => format!("the node type is \"{kind}\", not a channel adapter (CA)"),
        SkipReason::OfGaudi => "it is a part of a Gaudi accelerator, which only HCCL can use".to_owned(),
        SkipReason::NvSwitch(sign) => {
            format!("it connects to the NVSwitches of this machine, not to a network ({})", nvswitch(sign))
        }
        SkipReason::CarriesDefaultRoute { interface, route, by } => {
            let by = by.map(|by| format!(" ({by})")).unwrap_or_default();
            format!("its interface {interface} carries {route}{by}")
        }
        SkipReason::NearNoGpu(nearest) => format!(
            "no GPU is near ({} at best), and every GPU has a nearer HCA (PIX or PXB)",
            nearest.word()
        ),
        SkipReason::OtherSubnet { own, rails } => format!(
            "its InfiniBand subnet is {own}, and that of the rails, which are enough for the GPUs, is {rails}"
        ),
        SkipReason::Slower { own, rails } => {
            format!("its rate is {own}, and that of the rails, which are enough for the GPUs, is {rails}")
        }
        SkipReason::OtherLinkLayer(own, others) => format!(
            "its link layer is {}, and the job's fabric is {}",
            String::from(own.clone()),
            String::from(others.clone())
        ),
        SkipReason::TurnedOff { by } => format!("usable, but {by} turns verbs off"),
        SkipReason::LinkLocal => {
            "its address is link-local (169.254.0.0/16), and the other HCAs have addresses of a network"
                .to_owned()
        }
        SkipReason::NoOwnGid => "no RoCE v2 GID has an address of this container".to_owned(),
        SkipReason::GidElsewhere(index) => {
            format!("its GID is not at index {index}, which is set for the other HCAs")
        }
        SkipReason::NotNamed { by } => format!("not selected by {by}"),
        SkipReason::NotOfPlugin { by } => format!("the net plugin of {by} is for other devices"),
        SkipReason::WithoutVerbs { by } => format!("usable, but {by} is for hosts without verbs"),
    }
}

/// Returns why an HCA is taken to connect to NVSwitches.
pub(crate) fn nvswitch(sign: &NvSwitch) -> String {
    match sign {
        NvSwitch::ProductData => "its VPD has SMDL=SW_MNG".to_owned(),
        NvSwitch::SameNic(other) => {
            format!("{other}, a function of the same NIC, has SMDL=SW_MNG in its VPD")
        }
        NvSwitch::OnEc2 => "inferred: Amazon EC2 has EFA and no InfiniBand".to_owned(),
        NvSwitch::FourFunctions { model } => format!(
            "inferred: with {model}, it is one of four InfiniBand functions of one NIC, and the other HCAs are enough for the GPUs; only root can read its VPD"
        ),
    }
}

/// Returns why an interface was chosen. The subject is the interface.
pub(crate) fn because(because: Because) -> String {
    match because {
        Because::HasMaster(Master { variable, address }) => {
            format!("has the address of {variable}, {address}")
        }
        Because::RouteToMaster(Master { variable, address }) => {
            format!("carries the route to {variable}, {address}")
        }
        Because::DefaultRoute(route) => format!("carries {route}"),
        Because::Only => "the only interface that is up and has an address".to_owned(),
        Because::OnlyBesideHcas => {
            "the only interface that is up, has an address, and belongs to no HCA".to_owned()
        }
    }
}

impl fmt::Display for WhichRoute {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            WhichRoute::Only => "the default route",
            WhichRoute::OneOfSeveral => "a default route",
            WhichRoute::Best => "the default route of the lowest metric",
        })
    }
}

/// Writes a predicate. The subject is the interface.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Obstacle::NotThere => "does not exist",
            Obstacle::Down => "is down",
            Obstacle::NoCarrier => "has no carrier (UP, but not RUNNING)",
            Obstacle::NoAddress => "has no address",
            Obstacle::NoGlobalAddress => "has no global address",
        })
    }
}

/// Returns a clause such as `NCCL 2.27.7 finds` or `NCCL 2.27.7 and 2.28.9 find`.
fn find(library: Flavor, releases: &[Version]) -> String {
    let releases: Vec<String> = releases.iter().map(Version::to_string).collect();
    match releases.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{library} {} and {last} find", rest.join(", ")),
        Some((only, _)) => format!("{library} {only} finds"),
        None => format!("{library} finds"),
    }
}

fn most_common(agreeing: usize, of: usize) -> String {
    format!("the index that is right for the most ports ({agreeing} of {})", counted(of, "port"))
}

/// Returns the address with its interface, such as `172.16.1.9 on eth1.100`, because the name may show a
/// VLAN.
fn address(gid: &Gid) -> String {
    match &gid.netdev {
        Some(netdev) => format!("{} on {netdev}", gid.address()),
        None => gid.address().to_string(),
    }
}

/// The most addresses in a line.
const SHOWN: usize = 4;

fn addresses(gids: &[Gid]) -> String {
    let mut list: Vec<String> = gids.iter().take(SHOWN).map(address).collect();
    if gids.len() > SHOWN {
        list.push(format!("{} more", gids.len() - SHOWN));
    }
    list.join(", ")
}
