//! Holds each value that the plan selects against the forecast without it: a value that NCCL is better off
//! without stays unset. Reasons that no rule of selection sees all end here, such as a family that the user
//! demands, or an address that NCCL finds under another name.

use std::net::IpAddr;

use super::setting::{SELECTION, Setting, SettingOutcome};
use super::{Context, forecast};
use crate::fabric::Candidate;
use crate::fabric::gid::OwnAddresses;
use crate::fabric::interface::is_eligible;
use crate::facts::Facts;
use crate::finding::Source;
use crate::libraries::nccl::installed;
use crate::libraries::nccl::predict::{Bootstrap, GidUse, PortUse, Prediction, Transport, predict};
use crate::libraries::nccl::version::{KINDS, Version};

/// What a release does with the plan's rails and with the bootstrap. In each part, more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grade {
    bootstrap: u8,
    /// Whether verbs carry the traffic, on how many rails with a right GID, and, negative, on how many other ports or
    /// with a wrong GID.
    transport: (u8, usize, isize),
}

/// An endpoint that other nodes can reach, on the plan's interface.
const BEST_BOOTSTRAP: u8 = 4;

impl Grade {
    fn is_worse_than(self, other: Grade) -> bool {
        let at_most = self.bootstrap <= other.bootstrap && self.transport <= other.transport;
        at_most && self != other
    }
}

/// The measure of a prediction.
struct Measure<'a> {
    facts: &'a Facts,
    own: OwnAddresses,
    rails: Vec<String>,
    interface: Option<&'a str>,
}

impl Measure<'_> {
    fn grade(&self, prediction: &Prediction) -> Grade {
        Grade {
            bootstrap: self.bootstrap(&prediction.bootstrap),
            transport: self.transport(&prediction.transport),
        }
    }

    fn bootstrap(&self, bootstrap: &Bootstrap) -> u8 {
        let endpoint = match bootstrap {
            Bootstrap::Fails(_) => return 0,
            // The user's NCCL_COMM_ID decides alone.
            Bootstrap::DependsOnName(_) => return BEST_BOOTSTRAP,
            Bootstrap::On(endpoint) => endpoint,
        };
        // The label of an address follows the interface's name and a colon.
        let name = endpoint.interface.split(':').next().unwrap_or_default();
        let is_usable = |interface| is_eligible(interface) && interface.is_up();
        if !self.facts.net.interface(name).is_none_or(is_usable) {
            return 1;
        }
        let is_link_local = match endpoint.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        match (is_link_local, self.interface == Some(name)) {
            (true, _) => 2,
            (false, false) => 3,
            (false, true) => BEST_BOOTSTRAP,
        }
    }

    fn transport(&self, transport: &Transport) -> (u8, usize, isize) {
        match transport {
            // The plugin's own choice is unknown; those with NCCL's variables do as NCCL does.
            Transport::Plugin { otherwise, .. } => self.transport(otherwise),
            Transport::Fails(_) => (0, 0, 0),
            Transport::Sockets { .. } => (1, 0, 0),
            Transport::Verbs(ports) => {
                let (right, wrong): (Vec<_>, Vec<_>) = ports.iter().partition(|port| self.is_right(port));
                // Verbs without a right GID connect to nothing, and NCCL does not fall back to sockets.
                let kind = if right.is_empty() { 0 } else { 2 };
                (kind, right.len(), -isize::try_from(wrong.len()).unwrap_or(isize::MAX))
            }
        }
    }

    fn is_right(&self, used: &PortUse) -> bool {
        let is_own = |index: i64| {
            let port = self.facts.port(&used.hca, used.port);
            port.is_some_and(|(_, port)| self.own.slots(port).iter().any(|gid| i64::from(gid.index) == index))
        };
        let has_own_gid = match &used.gid {
            None => true,
            Some(GidUse::Slot { index, .. }) => is_own(*index),
            Some(GidUse::Fails(_)) => false,
        };
        has_own_gid && self.rails.contains(&used.name())
    }
}

/// Leaves each selected value unset if one of the releases in the image is better off without it.
pub(super) fn leave_unset(
    context: &Context,
    ports: &[Candidate],
    interface: Option<&str>,
    settings: &mut [Setting],
) {
    let facts = context.facts;
    // Without a list of interfaces, no forecast of them means anything.
    if facts.net.interfaces.is_empty() {
        return;
    }
    let rails: Vec<String> = ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect();
    let best = Grade { bootstrap: BEST_BOOTSTRAP, transport: (2, rails.len(), 0) };
    let measure = Measure { facts, own: OwnAddresses::of(facts), rails, interface };
    for version in releases(context) {
        let graded = |settings: &[Setting], without: Option<&str>| {
            let get = |name: &str| forecast::value(settings, name).filter(|_| without != Some(name));
            let prediction = predict(facts, get, version);
            (measure.grade(&prediction), prediction)
        };
        let (mut with, mut prediction) = graded(settings, None);
        for place in 0..settings.len() {
            if with == best {
                break;
            }
            let Some(setting) = settings.get(place).filter(|setting| is_selected(setting)) else { continue };
            let (without, then) = graded(settings, Some(&setting.variable));
            if !with.is_worse_than(without) {
                continue;
            }
            let library = context.library().of_release(Some(version));
            let value = setting.value.as_deref().unwrap_or_default();
            let reason = match with.bootstrap < without.bootstrap {
                true => format!(
                    "with {value}, {library} {}; without it, it {}",
                    bootstraps(&prediction.bootstrap),
                    bootstraps(&then.bootstrap)
                ),
                false => format!(
                    "with {value}, {library} has {} right; without it, {}",
                    rails_with(with),
                    rails_with(without)
                ),
            };
            let variable = setting.variable.clone();
            if let Some(setting) = settings.get_mut(place) {
                *setting = Setting::left(variable, None, SettingOutcome::Unset, Source::Facts, reason);
            }
            (with, prediction) = (without, then);
        }
    }
}

/// Returns the releases that may read the values; one of each kind if the image does not show them.
fn releases(context: &Context) -> Vec<Version> {
    match installed::releases(context.facts) {
        Ok(releases) if !releases.is_empty() => releases,
        _ => context.user.version().map_or_else(|| KINDS.to_vec(), |version| vec![version]),
    }
}

fn is_selected(setting: &Setting) -> bool {
    setting.outcome == SettingOutcome::Filled
        && !setting.at_start
        && setting.source != Source::Configuration
        && SELECTION.contains(&setting.variable.as_str())
}

fn bootstraps(bootstrap: &Bootstrap) -> String {
    match bootstrap {
        Bootstrap::Fails(message) => format!("fails with \"{message}\""),
        Bootstrap::On(endpoint) => format!("bootstraps on {} {}", endpoint.interface, endpoint.address),
        Bootstrap::DependsOnName(name) => format!("bootstraps where {name} leads"),
    }
}

fn rails_with(grade: Grade) -> String {
    match grade.transport {
        (_, 0, _) => "no rail".to_owned(),
        (_, 1, _) => "one rail".to_owned(),
        (_, rails, _) => format!("{rails} rails"),
    }
}
