//! All words of the plan, and of the choice of rails: why a variable has its value, what was tried,
//! why a port is not used.

pub mod libraries;

use std::fmt;

use super::rule::{Evidence, Known, Lack, NotTaken, OfProfile, Published, Rule, SearchEnd, Sign, Trial};
use crate::fabric::interface::{Because, Obstacle, Way};
use crate::fabric::{Reason, WhichRoute};
use crate::facts::gid::Gid;
use crate::libraries::nccl::gid::INDEX;
use crate::text::{counted, reworded};

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Rule::AsWritten(text) => f.write_str(text),
            Rule::OfRccl(rule) => f.write_str(&said_of_rccl(&rule.to_string())),
            Rule::SetByUser => f.write_str("set by the user"),
            Rule::Keep => f.write_str("not to be filled in (keep)"),
            Rule::Published => f.write_str("published"),
            Rule::PublishedAsUnset => f.write_str("the platform says to leave it unset"),
            Rule::PublishedHcas => f.write_str("published, and it selects just the HCAs to use"),
            Rule::PublishedSlot(index) => write!(f, "published, and {}", right_everywhere(*index)),
            Rule::PublishedInterface(choice) => {
                write!(f, "published, and {} {}", choice.name, because(choice.because))
            }
            Rule::PublishedInterfaceIsThere => {
                f.write_str("published, and an interface here has this name; no route shows a better one")
            }
            Rule::UsableHcas { used, of } if used == of => write!(f, "every HCA is usable ({used})"),
            Rule::UsableHcas { used, of } => write!(f, "the usable HCAs ({used} of {of} ports)"),
            Rule::KeepsFromLeftOut(ports) => {
                write!(f, "without it, NCCL would take {}, which is left out", ports.join(", "))
            }
            Rule::KeepsFromFailing(ports) => write!(
                f,
                "without it, NCCL would take {}, and fail at the first connection",
                ports.join(", ")
            ),
            Rule::RightSlot(index) => f.write_str(&right_everywhere(*index)),
            Rule::MostCommonSlot { agreeing, of } => f.write_str(&most_common(*agreeing, *of)),
            Rule::SearchFinds => {
                f.write_str("the right slot differs between HCAs, and NCCL's own search finds each")
            }
            Rule::SteersSearch => {
                f.write_str("makes NCCL's own search find the GID of this container on every HCA")
            }
            Rule::Interface(why) => f.write_str(&because(*why)),
            Rule::FallbackIsAnError => f.write_str(
                "what NCCL will use; with its name a fall-back to TCP is an error, as require-rdma asks",
            ),
            Rule::Follows(profile) => write!(f, "follows NCCL's variable, as profile {profile} asks"),
            Rule::Mends(_, why) => why.fmt(f),
        }
    }
}

/// A sentence about NCCL, where RCCL takes its place.
pub fn said_of_rccl(sentence: &str) -> String {
    reworded(sentence, "NCCL", "RCCL")
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Evidence::Used { port, link_layer, rate } => {
                write!(f, "{port} ACTIVE, {}, {rate}", String::from(link_layer.clone()))
            }
            Evidence::LeftOut { port, reason } => write!(f, "{port} left out: {}", left_out(reason)),
            Evidence::NearGpu { gpu, hcas } => {
                let near: Vec<String> =
                    hcas.iter().map(|(hca, distance)| format!("{hca} {}", distance.word())).collect();
                write!(f, "GPU {gpu}: {}", near.join(", "))
            }
            Evidence::Slot { port, gid } => {
                write!(f, "{port} slot {}: {}, RoCE v2", gid.index, address(gid))
            }
        }
    }
}

impl Trial {
    /// What was tried.
    pub fn rule(&self) -> String {
        match self {
            Trial::Interface(Way::ToMaster, _) => "the interface of the route to MASTER_ADDR".to_owned(),
            Trial::Interface(Way::DefaultRoute, _) => "the interface of the default route".to_owned(),
            Trial::Interface(Way::Only, _) => because(Because::Only),
            Trial::PublishedInterface(name) => {
                format!("the published {name}, if it selects just that interface")
            }
            Trial::NearHcas(_) => {
                "only the HCAs that are near a GPU (PIX or PXB), as every GPU has one".to_owned()
            }
            Trial::DefaultRoute { .. } => {
                "without the HCAs that carry a default route, where the others are enough".to_owned()
            }
            Trial::PublishedHcas { list, .. } => {
                format!("the published {list}, if it selects just the HCAs to use")
            }
            Trial::NamesOfHcas(_) => "the whole names of the HCAs to use".to_owned(),
            Trial::PublishedSlot { index, .. } => {
                format!("the published {index}, if it is right on every HCA")
            }
            Trial::CommonSlot(_) => "the lowest slot that is right on every HCA".to_owned(),
            Trial::Search { version, range, .. } => {
                let range =
                    range.map_or("without a range".to_owned(), |range| format!("with the range {range}"));
                format!("leave it unset: the search of NCCL {version} {range}")
            }
            Trial::MostCommonSlot { agreeing, of, .. } => most_common(*agreeing, *of),
            Trial::OtherSlot { index, gids, why } => {
                let right = match why {
                    NotTaken::RightOnSome { right, of } => format!("on {right} of {of} HCAs"),
                    NotTaken::OfTwoFamilies => "on every HCA, IPv4 on some and IPv6 on others".to_owned(),
                    NotTaken::OfIpv6 | NotTaken::Published(_) | NotTaken::Higher(_) => {
                        "on every HCA, too".to_owned()
                    }
                };
                format!("slot {index}, which is right {right} ({})", addresses(gids))
            }
            Trial::OtherSlotOfPort { port, gid, .. } => {
                format!("slot {} of {port}, which is right, too ({})", gid.index, address(gid))
            }
        }
    }

    /// What came of it.
    pub fn result(&self) -> String {
        match self {
            Trial::Interface(_, Some(name)) => name.clone(),
            Trial::Interface(_, None) | Trial::CommonSlot(None) => "there is none".to_owned(),
            Trial::PublishedInterface(_) | Trial::PublishedHcas { fits: false, .. } => {
                "it does not".to_owned()
            }
            Trial::PublishedHcas { fits: true, .. } => "it does".to_owned(),
            Trial::NearHcas(left_out) => format!("leaves out {}", left_out.join(", ")),
            Trial::DefaultRoute { left_out, kept } => {
                let named = [("leaves out", left_out), ("keeps", kept)].into_iter();
                let named = named.filter(|(_, names)| !names.is_empty());
                let named: Vec<String> =
                    named.map(|(what, names)| format!("{what} {}", names.join(", "))).collect();
                named.join(", ")
            }
            Trial::NamesOfHcas(list) => list.clone(),
            Trial::PublishedSlot { is_right: true, .. } => "it is".to_owned(),
            Trial::PublishedSlot { is_right: false, .. } => "it is not".to_owned(),
            Trial::CommonSlot(Some(index)) | Trial::MostCommonSlot { index, .. } => {
                format!("slot {index}")
            }
            Trial::Search { end: SearchEnd::Right, .. } => "it ends on a right slot of every HCA".to_owned(),
            Trial::Search { end: SearchEnd::WrongSlot { port, slot }, .. } => {
                format!("it ends on slot {slot} of {port}, which is wrong")
            }
            Trial::Search { end: SearchEnd::Fails { port, failure }, .. } => {
                format!("on {port} it {failure}")
            }
            Trial::OtherSlot { index, why, .. } => {
                let to_take_it = format!("; set {INDEX}={index} to take it");
                let why = match why {
                    NotTaken::RightOnSome { .. } => "one index holds for all HCAs".to_owned(),
                    NotTaken::OfTwoFamilies => "IPv4 and IPv6 cannot reach each other".to_owned(),
                    NotTaken::OfIpv6 => format!("IPv4 comes before IPv6{to_take_it}"),
                    NotTaken::Published(taken) => format!("slot {taken} is published{to_take_it}"),
                    NotTaken::Higher(taken) => format!("slot {taken} is lower{to_take_it}"),
                };
                format!("not taken, because {why}")
            }
            Trial::OtherSlotOfPort { end, .. } => {
                format!("not taken, because the search ends on slot {} ({})", end.index, address(end))
            }
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Lack::NoDevice => f.write_str("there is no RDMA device in this container"),
            Lack::Hidden { path, error } => {
                write!(f, "the RDMA devices cannot be seen ({} {error})", path.display())
            }
            Lack::NoneUsed(reasons) => {
                let said = |(reason, names): &(Reason, Vec<String>)| {
                    format!("{}: {}", names.join(", "), left_out(reason))
                };
                let list: Vec<String> = reasons.iter().map(said).collect();
                write!(f, "no RDMA device here is used ({})", list.join("; "))
            }
            Lack::NoDeviceForPlugin => f.write_str("no device for the net plugin is usable"),
            Lack::Interface(name, Obstacle::NotThere) => write!(f, "there is no interface {name}"),
            Lack::Interface(name, obstacle) => write!(f, "the interface {name} {obstacle}"),
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
            Sign::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (name, what) = match self {
            Published::Keep => return f.write_str("the configuration says never to fill it in (keep)"),
            Published::NoProfile => return f.write_str("no profile is in use, so nothing is filled in"),
            Published::Profile(name, what) => (name, what),
        };
        write!(f, "profile {name} ")?;
        match what {
            OfProfile::Value(value) if value.is_empty() => f.write_str("publishes an empty value"),
            OfProfile::Value(value) => write!(f, "publishes {value}"),
            OfProfile::Unset => f.write_str("says to leave it unset"),
            OfProfile::HandsOff => f.write_str("never sets it"),
            OfProfile::Companion => f.write_str("asks for it, to follow NCCL's variable"),
            OfProfile::Nothing => f.write_str("says nothing about it"),
        }
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Known::Never { similar } => {
                f.write_str("no NCCL up to 2.32 reads it")?;
                similar.iter().try_for_each(|name| write!(f, "; {name} has a similar name"))
            }
            Known::Read { since: None, until: None } => f.write_str("every NCCL reads it"),
            Known::Read { since: Some(since), until: None } => write!(f, "NCCL {since} and later read it"),
            Known::Read { since: None, until: Some(until) } => write!(f, "NCCL read it up to {until}"),
            Known::Read { since: Some(since), until: Some(until) } => {
                write!(f, "NCCL read it from {since} to {until}")
            }
        }
    }
}

/// Why a port is not used.
pub fn left_out(reason: &Reason) -> String {
    match reason {
        Reason::NotAllotted => "not allotted to this container: no /dev/infiniband/uverbs node".to_owned(),
        Reason::CannotBeOpened(error) => format!("the uverbs node cannot be opened: {error}"),
        Reason::PortState(state) if state.is_empty() => "the state of the port cannot be read".to_owned(),
        Reason::PortState(state) => format!("the port is {state}, not ACTIVE"),
        Reason::LinkLayer(link_layer) => {
            format!("NCCL has no transport for the link layer {}", String::from(link_layer.clone()))
        }
        Reason::Iwarp { erdma: false } => "it is an iWARP device, which NCCL does not support".to_owned(),
        Reason::Iwarp { erdma: true } => {
            "the erdma driver is in its iWARP mode, which NCCL does not support".to_owned()
        }
        Reason::NodeType(kind) => format!("the node type is \"{kind}\", not a channel adapter (CA)"),
        Reason::CarriesDefaultRoute { interface, route, by } => {
            let by = by.map(|by| format!(" ({by})")).unwrap_or_default();
            format!("its interface {interface} carries {route}{by}")
        }
        Reason::NearNoGpu(nearest) => format!(
            "no GPU is near ({} at best), and every GPU has a nearer HCA (PIX or PXB)",
            nearest.word()
        ),
        Reason::OtherLinkLayer(own, others) => format!(
            "its link layer is {}, and the job's fabric is {}",
            String::from(own.clone()),
            String::from(others.clone())
        ),
        Reason::TurnedOff { by } => format!("usable, but {by} turns verbs off"),
        Reason::NoOwnGid => "no RoCE v2 GID has an address of this container".to_owned(),
        Reason::GidElsewhere(index) => {
            format!("its GID is not in slot {index}, which is set for the other HCAs")
        }
        Reason::NotNamed { by } => format!("not selected by {by}"),
        Reason::WithoutVerbs { by } => format!("usable, but {by} is for hosts without verbs"),
    }
}

/// Why an interface is chosen. The subject is the interface.
pub fn because(because: Because) -> String {
    match because {
        Because::HasMaster(master) => format!("has the address of MASTER_ADDR, {master}"),
        Because::RouteToMaster(master) => format!("carries the route to MASTER_ADDR, {master}"),
        Because::DefaultRoute(route) => format!("carries {route}"),
        Because::Only => "the only interface that is up and has an address".to_owned(),
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

/// The subject is the interface.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Obstacle::NotThere => "is not there",
            Obstacle::Down => "is down",
            Obstacle::NoCarrier => "has no carrier (UP, but not RUNNING)",
            Obstacle::NoAddress => "has no address",
            Obstacle::NoGlobalAddress => "has no global address",
        })
    }
}

fn right_everywhere(index: u32) -> String {
    format!("slot {index} of every HCA has a RoCE v2 GID with an address of this container")
}

fn most_common(agreeing: usize, of: usize) -> String {
    format!("the slot that is right for the most ports ({agreeing} of {})", counted(of, "port"))
}

/// `172.16.1.9 on eth1.100`, where the name of the interface tells a VLAN.
fn address(gid: &Gid) -> String {
    match &gid.netdev {
        Some(netdev) => format!("{} on {netdev}", gid.address()),
        None => gid.address().to_string(),
    }
}

/// A line shows at most this many addresses.
const SHOWN: usize = 4;

fn addresses(gids: &[Gid]) -> String {
    let mut list: Vec<String> = gids.iter().take(SHOWN).map(address).collect();
    if gids.len() > SHOWN {
        list.push(format!("{} more", gids.len() - SHOWN));
    }
    list.join(", ")
}
