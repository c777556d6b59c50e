//! What to set, and why: a pure function of the facts, the profiles and the
//! configuration. No I/O, so that any host can be replayed.
//!
//! What the user set stands. Selection (which HCAs, which GID, which interface)
//! comes from the facts, with the profile's published constant preferred where
//! the facts agree with it. Tuning comes only from a profile. Every value
//! carries where it comes from, the rule, and the evidence.

mod companions;
mod constraints;
mod devices;
mod fabric;
mod fill;
mod finding;
mod gid;
mod hcas;
mod interface;
mod options;
mod profile;
mod setting;
mod user;

use serde::Serialize;

pub use devices::{PortVerdict, visible_to_nccl};
pub use fabric::Fabric;
pub use finding::{Finding, Severity};
pub use gid::own_slots;
pub use options::{Options, ProfileOption};
pub use profile::ProfileChoice;
pub use setting::{Outcome, Setting};
pub use user::User;

use crate::facts::Facts;
use crate::profiles::{self, Profile, Profiles};

/// The decision about a container.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// `None` where no profile fits, or none is wanted.
    pub profile: Option<ProfileChoice>,
    pub fabric: Fabric,
    /// Every port of every HCA, and why it is used or not.
    pub ports: Vec<PortVerdict>,
    /// Every variable that was decided on, set or not.
    pub settings: Vec<Setting>,
    pub findings: Vec<Finding>,
}

impl Plan {
    /// The variables to put into the command's environment.
    pub fn filled(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings
            .iter()
            .filter(|setting| setting.outcome == Outcome::Filled)
            .filter_map(|setting| Some((setting.variable.as_str(), setting.value.as_deref()?)))
    }

    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Decides. The named profile of `options`, if any, must be one of `profiles`.
pub fn plan(facts: &Facts, profiles: &Profiles, options: &Options) -> Plan {
    let mut findings = Vec::new();
    let user = User::new(facts, options);
    let candidates = devices::candidates(facts);
    let (choice, profile) = profile::choose(facts, &candidates, profiles, options);

    let interface = interface::choose(facts);
    let mut ports = devices::select(facts, candidates, &profile, &user, interface.as_ref());
    let gid = gid::choose(facts, &mut ports, &profile, &user, &mut findings);
    let fabric = fabric::find(facts, &ports, &profile, &user);

    let mut settings = fill::user_settings(&user, &profile, options);
    if options.profile != ProfileOption::None && fabric.is_there() {
        let proposals = [
            hcas::propose(&ports, &profile, &mut findings),
            gid::propose(&gid, &profile, &mut findings),
            interface::propose(facts, interface.as_ref(), &profile, &mut findings),
            companions::propose(&ports, &gid, interface.as_ref(), &profile),
            fill::tuning(&profile),
        ];
        for proposal in proposals.into_iter().flatten() {
            fill::fill(&mut settings, proposal, &profile, options);
        }
    }
    findings.extend(devices::findings(&ports, &profile, &fabric));
    findings.extend(constraints::check(facts, &ports, &profile));
    findings.extend(fabric::findings(&fabric, &ports, &profile, choice.as_ref(), &user));

    Plan {
        profile: choice,
        fabric,
        ports: ports.into_iter().map(PortVerdict::from).collect(),
        settings,
        findings,
    }
}

/// The rules of a host without a profile.
fn no_profile() -> Profile {
    Profile { fabric: Some(profiles::Fabric::Verbs), ..Profile::default() }
}
