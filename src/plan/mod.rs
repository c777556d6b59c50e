//! What to set, and why: a pure function of the facts, the profiles, and the configuration. It does no I/O,
//! so any host can be replayed.
//!
//! The plan never changes the user's values. Selection (which HCAs, which GID, which interface) comes from
//! the facts (see [`crate::fabric`]); if the facts agree with the profile's published constant, the constant
//! is preferred. Tuning comes only from a profile. Every value carries its source, the rule, and the
//! evidence.

pub(crate) mod context;
pub(crate) mod env_plugin;
pub(crate) mod evidence;
mod fabric;
pub(crate) mod failover;
mod forecast;
pub(crate) mod gid;
mod hcas;
pub(crate) mod interface;
mod late;
mod libraries;
mod needs;
pub(crate) mod network;
mod notes;
mod options;
mod outcome;
pub(crate) mod over_tcp;
mod port_verdict;
pub(crate) mod profile;
mod setting;
pub(crate) mod subnets;
mod traffic_class;
mod user;
mod wanted;
mod why;
mod without;

use serde::Serialize;

pub use context::Context;
pub use env_plugin::EnvPlugin;
pub use fabric::{Fabric, NoRdmaReason};
pub(crate) use fabric::{named_for_plugin, uverbs_nodes};
pub use forecast::Forecast;
pub use late::LatePort;
pub use libraries::Outlook;
pub use needs::need;
pub use notes::{Notes, Tried};
pub use options::{DefaultRouteOption, EnvPluginOption, Options, ProfileOption};
pub use outcome::{Blocker, Outcome};
pub use port_verdict::PortVerdict;
pub use profile::ProfileChoice;
pub(crate) use setting::SELECTION;
pub use setting::{Setting, SettingOutcome};
pub use user::User;
pub use wanted::on_default_route;
pub use why::Why;

use over_tcp::Nodes;

use crate::fabric::{Candidate, Rails, candidates, choose, claims, is_of_gaudi, nvswitch};
use crate::facts::Facts;
use crate::facts::rdma::LinkLayer;
use crate::facts::secret::is_secret;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Source};
use crate::image::flavor::Flavor;
use crate::libraries::LibraryFinding;
use crate::libraries::nccl::predict::{PortUse, Prediction, Transport};
use crate::libraries::nccl::version::Version;
use crate::profiles::{self, Profile, Profiles};

/// The version of the document that contains a plan: `plan --json`, and the state's `plan.json`. It changes
/// if a field changes its meaning or is removed.
pub const SCHEMA: &str = "rdma-init/plan/1";

/// The decision about a container.
#[must_use]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// `None` if no profile fits, or the user wants none.
    pub profile: Option<ProfileChoice>,
    pub fabric: Fabric,
    /// Every port of every HCA, and why it is used or not.
    pub ports: Vec<PortVerdict>,
    /// Every variable that the plan decides on, set or not.
    pub settings: Vec<Setting>,
    /// The release of NCCL that was found for the job.
    pub nccl: Option<Version>,
    /// The library of that release.
    #[serde(rename = "rccl", skip_serializing_if = "Flavor::is_nccl")]
    pub library: Flavor,
    /// What NCCL will do with the settings: one forecast for the job's release; if it is unknown, one for
    /// each difference between releases. Empty if there is no RDMA.
    pub forecasts: Vec<Forecast>,
    /// Whether NCCL uses rdma-init's env plugin, which only a container start installs.
    #[serde(skip)]
    pub env_plugin: EnvPlugin,
    /// The ports that the env plugin adds for a process, if they are ACTIVE by then.
    #[serde(skip)]
    pub late: Vec<LatePort>,
    /// What the libraries other than NCCL will do, as far as the facts show.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<Outlook>,
    pub findings: Vec<Finding>,
    /// The rules that were tried, in order.
    #[serde(skip)]
    pub tried: Vec<Tried>,
}

impl Plan {
    /// Returns the ports that NCCL uses instead of the plan's ports, if it uses none of the plan's: on EFA
    /// without its plugin, these are HCAs that lead to NVSwitches.
    pub fn taken_instead<'a>(&self, transport: &'a Transport) -> Option<&'a [PortUse]> {
        let Transport::Verbs(ports) = transport else { return None };
        let used: Vec<String> =
            self.ports.iter().filter(|port| port.used).map(PortVerdict::full_name).collect();
        let is_foreign = |port: &PortUse| !used.contains(&port.name());
        (!ports.is_empty() && ports.iter().all(is_foreign)).then_some(ports)
    }

    /// Returns whether NCCL loads an env plugin, whose answers replace all variables.
    pub fn has_env_plugin(&self) -> bool {
        self.forecasts.iter().any(|forecast| forecast.prediction.env_plugin.is_some())
    }

    /// Returns whether this is what the container's start decided: it filled in variables, and no other is to be filled
    /// in now.
    pub fn is_of_start(&self) -> bool {
        let is_filled = |setting: &&Setting| setting.outcome == SettingOutcome::Filled;
        let mut filled = self.settings.iter().filter(is_filled).peekable();
        filled.peek().is_some() && filled.all(|setting| setting.at_start)
    }

    /// Returns the variables that rdma-init fills in, including secrets.
    pub fn filled(&self) -> impl Iterator<Item = (&str, &str)> {
        self.with_value(|setting| setting.outcome == SettingOutcome::Filled)
    }

    /// Returns a variable's value in the job's environment, conf files included.
    pub fn value(&self, variable: &str) -> Option<&str> {
        forecast::value(&self.settings, variable)
    }

    /// Returns the filled-in variables that other processes may see.
    pub fn public(&self) -> impl Iterator<Item = (&str, &str)> {
        self.filled().filter(|(name, _)| !is_secret(name))
    }

    /// Returns the variables that were already in the environment, that the plan keeps, and that other
    /// processes may see.
    pub fn inherited(&self) -> impl Iterator<Item = (&str, &str)> {
        // Values that are not UTF-8 were read with replacement characters.
        let is_exact = |setting: &Setting| !setting.value.as_deref().unwrap_or_default().contains('\u{fffd}');
        self.with_value(move |setting| {
            let is_of_environment =
                setting.outcome == SettingOutcome::User && setting.source == Source::Environment;
            is_of_environment && is_exact(setting) && !is_secret(&setting.variable)
        })
    }

    fn with_value(&self, which: impl Fn(&Setting) -> bool) -> impl Iterator<Item = (&str, &str)> {
        let settings = self.settings.iter().filter(move |setting| which(setting));
        settings.filter_map(|setting| Some((setting.variable.as_str(), setting.for_command()?)))
    }
}

/// The decision for a host, with everything that it is based on. [`crate::findings`] derives the findings
/// from it.
#[must_use]
pub struct Decided<'a> {
    pub context: Context<'a>,
    /// Every port of every HCA, with its verdict.
    pub ports: Vec<Candidate<'a>>,
    /// What the decision itself has shown that is worth reporting.
    pub findings: Vec<Finding>,
    /// What is wrong with the variables of libraries other than NCCL.
    pub of_libraries: Vec<LibraryFinding>,
    /// The interface on which the libraries other than NCCL are to bootstrap.
    pub beside: Option<String>,
    /// The plan without findings.
    pub plan: Plan,
}

impl<'a> std::ops::Deref for Decided<'a> {
    type Target = Context<'a>;

    fn deref(&self) -> &Context<'a> {
        &self.context
    }
}

impl Decided<'_> {
    /// Returns the job's library, with its release if that is known: `NCCL 2.21.5` or `NCCL`.
    pub fn nccl(&self) -> String {
        self.library().of_release(self.user.version())
    }

    /// Returns what the job's NCCL will do; if its release is unknown, what the newest release will do.
    pub fn prediction(&self) -> Option<&Prediction> {
        self.plan.forecasts.last().map(|forecast| &forecast.prediction)
    }

    /// Returns the RoCE ports that the job uses.
    pub fn used_roce(&self) -> impl Iterator<Item = &Candidate<'_>> {
        self.ports.iter().filter(|port| port.is_used() && port.port.link_layer == LinkLayer::Ethernet)
    }

    /// Returns a variable that the user has set to a non-empty value, if the job uses NCCL's own InfiniBand
    /// and RoCE transport, or should use it.
    pub fn verbs_setting(&self, variable: &str) -> Option<&UserSetting> {
        let matters = matches!(self.plan.fabric, Fabric::Verbs | Fabric::None(_));
        self.user
            .get(variable)
            .filter(|setting| matters && !setting.value.is_empty() && self.user.ib_disabled().is_none())
    }
}

/// Makes the decision. If `options` names a profile, it must be one of `profiles`.
pub fn decide<'a>(facts: &'a Facts, profiles: &Profiles, options: &'a Options) -> Decided<'a> {
    let mut decided = decide_as_found(facts, profiles, options);
    if decided.plan.env_plugin == EnvPlugin::Used {
        decided.plan.late = late::ports(facts, profiles, options, &decided.plan);
    }
    decided
}

/// Decides for the host as it is now, ignoring ports that may become ACTIVE later.
fn decide_as_found<'a>(facts: &'a Facts, profiles: &Profiles, options: &'a Options) -> Decided<'a> {
    let user = User::new(facts, options);
    let mut ports = candidates(facts);
    let (choice, profile, of_platform) = profile::choose(facts, &ports, profiles, options);
    let context = Context { facts, options, user, profile };
    let of_platform = of_platform.into_iter().filter(|(variable, _)| !context.leaves_alone(variable));
    let findings = of_platform.map(|(_, finding)| finding).collect();
    let mut notes = Notes { findings, ..Notes::default() };

    notes.steps(choose(facts, &mut ports, &wanted::wanted(&context)));
    hcas::leave_out_by_profile(&context, &mut ports, &mut notes);
    let gid = gid::choose(&context, &mut ports, &mut notes);
    let fabric = fabric::find(&context, &ports);

    if options.profile == ProfileOption::Auto && !fabric.is_there() {
        notes.findings.extend(profile::devices_missing(facts, profiles, &context.user));
    }

    let mut proposals = Vec::from_iter(hcas::propose_off(&context, &ports, &fabric));
    // Without RDMA and without a known platform, the plan decides only the interface, for a job that uses
    // TCP.
    let over_tcp = over_tcp::nodes(facts).filter(|_| choice.is_none() && !fabric.is_there());
    let decides_interface = choice.is_some() || over_tcp.is_some();
    let interface = if decides_interface { interface::choose(facts, &mut notes) } else { None };
    let rails = Rails {
        ports: &ports,
        gid_index: gid.index,
        interface: interface.as_ref().map(|choice| choice.name.as_str()),
    };
    // The libraries other than NCCL are to bootstrap where the user makes NCCL bootstrap.
    let of_user = libraries::interface_of_user(&context);
    let beside = Rails { interface: of_user.as_deref().or(rails.interface), ..rails };
    // If none of the Pod's own HCAs has a link, the lists of these libraries name them all the same.
    let linked = claims::as_if_linked(facts, &ports);
    let for_lists = Rails { ports: linked.as_deref().unwrap_or(&ports), ..beside };
    if let Some(nodes) = over_tcp {
        proposals.extend(over_tcp::propose(&context, nodes, interface.as_ref(), &mut notes));
    }
    if choice.is_some() {
        proposals.extend(hcas::propose(&context, &ports, &mut notes));
        proposals.extend(gid.settings);
        proposals.extend(interface::propose(&context, interface.as_ref(), &mut notes));
        proposals.extend(libraries::companions(&context, &Rails { interface: rails.interface, ..for_lists }));
        proposals.extend(setting::tuning(&context));
        proposals.extend(traffic_class::propose(&context, &ports));
        proposals.extend(libraries::propose(&context, &for_lists, &proposals));
    }
    let mut settings = setting::settings(&context, proposals);
    without::leave_unset(&context, &ports, rails.interface, &mut settings);
    let (outlooks, of_libraries) = match choice.is_some() {
        true => libraries::outlook(&context, &beside, &settings),
        false => Default::default(),
    };

    let beside = beside.interface.map(str::to_owned);

    // Without devices, without a platform, and on one node, there is no network to configure. NCCL is not the library
    // of Gaudi accelerators.
    let has_hca = facts.rdma.iter().any(|hca| !is_of_gaudi(hca));
    let has_forecast =
        (has_hca || choice.is_some() || over_tcp == Some(Nodes::Several)) && !context.command_runs_script();
    let network = (&fabric, context.profile.script.as_ref());
    let forecasts = |settings: &[Setting]| match has_forecast {
        true => forecast::forecasts(facts, network, settings, context.user.version()),
        false => Vec::new(),
    };
    let mut expected = forecasts(&settings);
    if let Some(proposal) = network::propose(&context, &expected, &ports) {
        settings.push(proposal);
        expected = forecasts(&settings);
    }
    settings.extend(network::propose_mismatch(&context, &expected));
    if choice.is_some() {
        settings.extend(subnets::propose(&context, &expected, &ports));
    }

    let wanted = wanted::without_users_list(&context);
    let left_idle = |port: &Candidate| !port.is_used() && wanted.contains(&port.name());
    let verdicts = ports
        .iter()
        .map(|port| PortVerdict {
            left_idle: left_idle(port),
            to_nvswitch: port.is_used() && nvswitch::sign(facts, port.hca).is_some(),
            ..PortVerdict::from(port)
        })
        .collect();

    let library = context.library();
    let env_plugin = env_plugin::decide(facts, &context.user, options, &settings);
    let Notes { findings, tried } = notes;
    let plan = Plan {
        profile: choice,
        fabric,
        ports: verdicts,
        settings,
        nccl: context.user.version(),
        library,
        forecasts: expected,
        env_plugin,
        late: Vec::new(),
        libraries: outlooks,
        findings: Vec::new(),
        tried,
    };
    Decided { context, ports, findings, of_libraries, beside, plan }
}

/// Returns the rules for a host without a profile.
fn no_profile() -> Profile {
    Profile { fabric: Some(profiles::Fabric::Verbs), ..Profile::default() }
}
