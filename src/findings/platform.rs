//! The platform's requirements for RDMA, compared with this host.

use super::counts;
use crate::fabric::{Candidate, SkipReason, Verdict, claims, interface};
use crate::facts::Facts;
use crate::facts::dra::ClaimedDevice;
use crate::facts::secret::shown;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id, Source};
use crate::libraries::nccl::devices::LIST;
use crate::libraries::nccl::version::Version;
use crate::plan::profile::with_source;
use crate::plan::{Context, Fabric, Plan, ProfileOption, named_for_plugin, over_tcp};
use crate::profiles::{self, GpuRow, Profile};
use crate::text::{condensed, counted};

pub(super) fn findings(context: &Context, ports: &[Candidate], fabric: &Fabric) -> Vec<Finding> {
    let Context { facts, profile, .. } = context;
    let mut findings = Vec::new();
    findings.extend(cards(context));
    match &profile.fabric {
        Some(profiles::Fabric::PluginOverInterfaces(_)) => {
            // If the plugin has no interface at all, `no-usable-hca` reports it.
            let wanted = &profile.constraints.interfaces_up;
            let has_one = facts.net.interfaces.iter().any(|interface| wanted.contains(&interface.name));
            let wanted = match named_for_plugin(&context.user, profile) {
                Some(value) => exact_names(facts, value),
                None if has_one => wanted.clone(),
                None => Vec::new(),
            };
            findings.extend(interfaces_of_plugin(facts, profile, &wanted).filter(|_| fabric.is_there()));
        }
        of_profile => {
            for name in &profile.constraints.interfaces_up {
                // If the fabric's own interface is missing, `no-fabric` reports it.
                let is_fabric = *of_profile == Some(profiles::Fabric::Interface(name.clone()));
                if !is_fabric || fabric.is_there() {
                    findings.extend(interface_up(facts, profile, name));
                }
            }
        }
    }
    let of_platform = nics(context, ports).or_else(|| nics_of_gpus(facts, ports, profile));
    findings.extend(of_platform.or_else(|| counts::one_is_missing(context, ports)));
    for (id, what, minimum, found) in [
        (
            Id::NcclTooOld,
            &*context.library().to_string(),
            &profile.constraints.nccl_min,
            context.user.version(),
        ),
        (Id::CudaTooOld, "CUDA", &profile.constraints.cuda_min, cuda(facts)),
    ] {
        if let (Some(minimum), Some(found)) = (minimum, found)
            && let Some(least) = Version::parse(minimum)
            && found < least
        {
            findings.push(
                Finding::warning(
                    id,
                    format!(
                        "Profile {} needs {what} {minimum} or later, but the image has {found}.",
                        profile.name
                    ),
                )
                .with_fix(format!("Use an image with {what} {minimum} or later.")),
            );
        }
    }
    findings
}

/// Returns the version of the image's CUDA runtime: from `CUDA_VERSION`, else from the library.
fn cuda(facts: &Facts) -> Option<Version> {
    let library = || facts.image.as_ref()?.cuda_runtime.first()?.version.as_deref();
    Version::parse(facts.platform.cuda_version.as_deref().or_else(library)?)
}

fn cards(context: &Context) -> Option<Finding> {
    let Context { facts, profile, .. } = context;
    let count = facts.gpu.count?;
    let allowed = &profile.constraints.cards;
    if allowed.is_empty() || allowed.contains(&count) {
        return None;
    }
    let list: Vec<String> = allowed.iter().map(u32::to_string).collect();
    let list = list.join(" or ");
    let (name, gpus) = (&profile.name, counted(count as usize, "GPU"));
    let doubted = may_lack_its_hcas(context);
    // With require-rdma, the job must not start on what is not certain.
    let wrong = |message| match doubted.is_some() && context.options.require_rdma {
        true => Finding::error(Id::CardCount, message),
        false => Finding::warning(Id::CardCount, message),
    };
    if let Some(note) = profile.constraints.cards_note.as_ref()
        && profile.constraints.cards_elsewhere.contains(&count)
    {
        let message = format!(
            "This container has {gpus}. Profile {name} has RDMA only with {list} GPUs, with one exception: {note}"
        );
        let Some(interface) = doubted else {
            return Some(
                Finding::info(Id::CardCount, message)
                    .with_fix("Check that the exception applies to this container."),
            );
        };
        let otherwise = profile.hint.as_ref().map(|hint| format!(" Otherwise: {hint}")).unwrap_or_default();
        return Some(
            wrong(format!(
                "{message} Nothing here shows that the exception applies: {interface} may belong to a fabric whose HCAs are missing in this container, and the job would then run on TCP."
            ))
            .about_interfaces([interface])
            .with_fix(format!(
                "If the exception applies, set profile = \"{name}\" (RDMA_INIT_PROFILE={name}).{otherwise}"
            )),
        );
    }
    let note = profile.constraints.cards_note.as_ref().map(|note| format!(" {note}")).unwrap_or_default();
    let finding =
        wrong(format!("This container has {gpus}, but profile {name} has RDMA only with {list} GPUs.{note}"));
    Some(match &profile.hint {
        Some(hint) => finding.with_fix(hint.clone()),
        None => finding,
    })
}

/// Returns the interface that alone has selected a profile without verbs, although the machine may be of another kind,
/// whose HCAs are missing. A user who has named the profile, or set the variables that turn verbs off as published,
/// knows better. Without require-rdma, this matters only to a job that certainly has several nodes.
fn may_lack_its_hcas<'a>(context: &'a Context) -> Option<&'a str> {
    let Context { facts, profile, user, options } = context;
    let Some(profiles::Fabric::Interface(interface)) = &profile.fabric else { return None };
    let is_as_published = |variable: &str| {
        let value = user.get(variable).map(|setting| setting.value.as_str());
        value.is_some() && value == profile.variables.get(variable).map(String::as_str)
    };
    let is_certain = matches!(options.profile, ProfileOption::Named(_))
        || ["NCCL_IB_DISABLE", LIST].into_iter().all(is_as_published);
    let matters = options.require_rdma || over_tcp::nodes(facts) == Some(over_tcp::Nodes::Several);
    (!is_certain && matters && interface::obstacle(facts, interface).is_none()).then_some(interface)
}

fn interface_up(facts: &Facts, profile: &Profile, name: &str) -> Option<Finding> {
    let obstacle = interface::obstacle(facts, name)?;
    let finding = Finding::warning(
        Id::InterfaceMissing,
        format!("Profile {} expects RDMA behind the interface {name}, which {obstacle}.", profile.name),
    )
    .about_interfaces([name]);
    Some(match &profile.hint {
        Some(hint) => finding.with_fix(hint.clone()),
        None => finding,
    })
}

/// Returns the interfaces that a list names, unless one of its entries stands for several (`^eth0`, or a prefix).
fn exact_names(facts: &Facts, list: &str) -> Vec<String> {
    let here = || facts.net.interfaces.iter().map(|interface| &interface.name);
    let is_prefix = |name: &String| {
        here().all(|of_host| of_host != name) && here().any(|of_host| of_host.starts_with(name.as_str()))
    };
    let names = list.strip_prefix('=').unwrap_or(list).split(',').map(|name| name.trim().to_owned());
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    if list.starts_with('^') || names.iter().any(is_prefix) { Vec::new() } else { names }
}

/// Reports the interfaces that a net plugin needs and cannot use, in one finding.
fn interfaces_of_plugin(facts: &Facts, profile: &Profile, wanted: &[String]) -> Option<Finding> {
    let unusable = wanted.iter().filter_map(|name| Some((name.as_str(), interface::obstacle(facts, name)?)));
    let (names, obstacles): (Vec<&str>, Vec<_>) = unusable.unzip();
    if names.is_empty() {
        return None;
    }
    let all: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let why: Vec<String> =
        names.iter().zip(obstacles).map(|(name, obstacle)| format!("{name} {obstacle}")).collect();
    let message = format!(
        "The net plugin of profile {} uses {}, but {}: the job has {} of {} NICs.",
        profile.name,
        condensed(&all),
        why.join(", "),
        wanted.len() - names.len(),
        wanted.len()
    );
    let finding = Finding::warning(Id::InterfaceMissing, message).about_interfaces(all);
    Some(finding.with_fix(
        "Give the container all of the machine's networks (in Kubernetes, the Pod's annotation for its interfaces), and check on the node that each NIC is up.",
    ))
}

fn nics(context: &Context, ports: &[Candidate]) -> Option<Finding> {
    let Context { facts, profile, options, .. } = context;
    let nics = &profile.constraints.nics;
    let names = used_nics(ports);
    let count = u32::try_from(names.len()).ok().filter(|count| *count > 0 && !are_some_of_others(ports))?;
    let of_claim = facts.dra.iter().find_map(ClaimedDevice::instance_type);
    let known = options.instance_type.as_deref().or(of_claim).or(facts.dmi.product.as_deref());
    let product = known.unwrap_or_default();
    let are = if count == 1 { "is" } else { "are" };
    let published = nics.get(product).copied();
    let of_claims = claimed(facts, ports, published);
    let message = match nics.get(product) {
        Some(published) if *published == count => return None,
        Some(_) if of_claims.is_some() => return of_claims?.finding(ports),
        Some(published) if *published > count && has_share_of_machine(facts, ports) => return None,
        Some(published) => format!(
            "{product} has {}, but {count} {are} usable here.",
            counted(*published as usize, "RDMA NIC")
        ),
        None if nics.is_empty()
            || profile.constraints.other_types
            || nics.values().any(|published| *published == count) =>
        {
            return None;
        }
        None if of_claims.is_some() => return of_claims?.finding(ports),
        None => format!(
            "{} {are} usable here, but no instance type of profile {} has {count}.",
            counted(names.len(), "RDMA NIC"),
            profile.name
        ),
    };
    let used = ports.iter().filter(|port| port.is_used()).map(Candidate::name);
    let fix = match context.uses_verbs() && nics.get(product).is_some_and(|published| *published < count) {
        true => TOO_MANY,
        false => {
            "Check that the container has all RDMA devices of the instance, and that their ports are ACTIVE."
        }
    };
    Some(Finding::warning(Id::NicCount, message).about_ports(used).with_fix(fix))
}

/// Returns whether the Pod holds only some of the machine's NICs, so that the machine's number says nothing.
fn are_some_of_others(ports: &[Candidate]) -> bool {
    ports.iter().any(Candidate::is_of_others)
}

/// Returns whether the container was given some of the machine's GPUs, and only some of the HCAs that are visible here. The
/// machines whose instance types are published with several NICs have as many GPUs as a whole machine.
fn has_share_of_machine(facts: &Facts, ports: &[Candidate]) -> bool {
    let is_of_others = |port: &Candidate| port.verdict == Verdict::LeftOut(SkipReason::NotAllotted);
    facts.gpu.count.is_some_and(|gpus| gpus < GPUS_OF_MACHINE) && ports.iter().any(is_of_others)
}

/// The number of GPUs of the machines for which a platform publishes several NICs by instance type.
const GPUS_OF_MACHINE: u32 = 8;

/// The NICs that the Pod's claims hold: fewer than the machine has.
struct ClaimedNics {
    held: usize,
    used: usize,
}

/// Returns the NICs of the Pod's claims if these, and not the machine, decide how many the job can have. `published` is
/// the machine's number, if the platform publishes it.
fn claimed(facts: &Facts, ports: &[Candidate], published: Option<u32>) -> Option<ClaimedNics> {
    let held = claims::nics(facts, ports)?;
    let are_some = published.is_none_or(|published| held < published as usize);
    are_some.then(|| ClaimedNics { held, used: used_nics(ports).len() })
}

impl ClaimedNics {
    fn finding(&self, ports: &[Candidate]) -> Option<Finding> {
        let are = if self.used == 1 { "is" } else { "are" };
        let message = format!(
            "The Pod's resource claims hold {}, but {} {are} usable here.",
            counted(self.held, "RDMA NIC"),
            self.used
        );
        let used = ports.iter().filter(|port| port.is_used()).map(Candidate::name);
        (self.used < self.held).then(|| {
            Finding::warning(Id::NicCount, message)
                .about_ports(used)
                .with_fix("Check that the container has all RDMA devices of its claims, and that their ports are ACTIVE.")
        })
    }
}

/// The fix if more NICs are usable than the platform publishes.
const TOO_MANY: &str =
    "Find out whether one of them serves storage or management; if so, name only the rails in NCCL_IB_HCA.";

/// Returns the names of the used HCAs.
fn used_nics<'a>(ports: &'a [Candidate]) -> Vec<&'a str> {
    let mut names: Vec<&str> =
        ports.iter().filter(|port| port.is_used()).map(|port| port.hca.name.as_str()).collect();
    names.dedup();
    names
}

/// Compares the NICs with the number that the platform publishes for machines with these GPUs. A container
/// with only some of the GPUs may have only some of the NICs. Of several machines with these GPUs, each has its own row,
/// and each number is right.
fn nics_of_gpus(facts: &Facts, ports: &[Candidate], profile: &Profile) -> Option<Finding> {
    let has_model =
        |row: &&GpuRow| facts.gpu.models.iter().any(|model| profiles::fits_model(&row.model, model));
    let first = profile.constraints.gpus.iter().find(has_model)?;
    let is_alike = |row: &&GpuRow| (&row.model, row.count) == (&first.model, first.count);
    let numbers: Vec<u32> = profile.constraints.gpus.iter().filter(is_alike).map(|row| row.nics).collect();
    let names = used_nics(ports);
    let fits = |row: &&GpuRow| is_alike(row) && u32::try_from(names.len()) == Ok(row.nics);
    let row = profile.constraints.gpus.iter().find(fits).unwrap_or(first);
    if facts.gpu.count != Some(row.count) || names.is_empty() || are_some_of_others(ports) {
        return None;
    }
    // Who names the HCAs has counted them.
    if ports.iter().any(Candidate::is_not_named) {
        return None;
    }
    let used = || ports.iter().filter(|port| port.is_used());
    let gpus = format!("{} {}", row.count, facts.gpu.models.first().map_or("GPUs", String::as_str));
    let of_claims = claimed(facts, ports, Some(row.nics));
    if let Some(finding) = of_claims.as_ref().and_then(|claimed| claimed.finding(ports)) {
        return Some(finding);
    }
    if of_claims.is_none() && u32::try_from(names.len()) != Ok(row.nics) {
        let published: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let nics = if numbers == [1] { "NIC" } else { "NICs" };
        let message = format!(
            "A machine of profile {} with {gpus} has {} RDMA {nics}, but {} usable here.",
            profile.name,
            published.join(" or "),
            if names.len() == 1 { "1 is".to_owned() } else { format!("{} are", names.len()) }
        );
        let has_plugin = matches!(
            profile.fabric,
            Some(profiles::Fabric::Plugin | profiles::Fabric::PluginOverInterfaces(_))
        );
        let fix = match !has_plugin && names.len() > row.nics as usize {
            true => TOO_MANY,
            false => {
                "Check that the container has all RDMA devices of the machine, and that their ports are ACTIVE."
            }
        };
        let ports = used().map(Candidate::name);
        return Some(Finding::warning(Id::NicCount, message).about_ports(ports).with_fix(fix));
    }
    let rate = row.rate?;
    let slow: Vec<String> =
        used().filter(|port| port.port.gigabits() < f64::from(rate)).map(Candidate::name).collect();
    if slow.is_empty() {
        return None;
    }
    let message = format!(
        "The NICs of a machine of profile {} with {gpus} have {rate} Gbit/s, but {} less here.",
        profile.name,
        if slow.len() == 1 { format!("{} has", slow[0]) } else { format!("{} have", condensed(&slow)) }
    );
    Some(Finding::warning(Id::NicCount, message).about_ports(slow).with_fix(
        "Check the links of these ports (ibstat, ethtool), or have the platform's support check the node.",
    ))
}

/// Reports profiles that fit as well as the chosen one.
pub(super) fn equal_profiles(plan: &Plan) -> Option<Finding> {
    let choice = plan.profile.as_ref().filter(|choice| !choice.equals.is_empty())?;
    let name = &choice.name;
    let (last, between) = choice.equals.split_last()?;
    let between: String = between.iter().map(|other| format!(", {other}")).collect();
    let message = format!(
        "The profiles {name}{between} and {last} fit this host and have the same priority; {name} counts because it comes first by name."
    );
    Some(Finding::warning(Id::EqualProfiles, message).with_fix(
        "Give the right profile a higher priority, or name it with the key profile (rdma-init profiles --why shows what fits).",
    ))
}

/// Reports the values of the user that are not what the platform publishes. They stand all the
/// same; the platform's support will ask about it.
pub(super) fn overridden(context: &Context) -> Vec<Finding> {
    let profile = &context.profile;
    // In this case, the platform itself sets all of these variables, as far as the environment shows.
    let leaves_all_to_platform = profile.hands_off.iter().any(|pattern| pattern == "NCCL_*");
    let said = |setting: &UserSetting| -> Option<String> {
        let variable = &setting.variable;
        if let Some(published) =
            profile.variables.get(variable).filter(|value| shown(variable, value) != setting.value)
        {
            let published = if published.is_empty() { "an empty value" } else { shown(variable, published) };
            Some(match profile.from_environment.get(variable) {
                Some(source) => format!("the platform's variable {source} gives {published}"),
                None => format!("profile {} publishes {published}", profile.name),
            })
        } else if profile.unset.contains(variable) {
            Some(format!("profile {} says to leave it unset", profile.name))
        } else if context.hands_off(variable) && !leaves_all_to_platform {
            Some(format!("profile {} never sets it", profile.name))
        } else {
            None
        }
    };
    context
        .user
        .effective()
        // The user decides how much NCCL logs. A value that rdma-init has filled in is not the user's.
        .filter(|setting| setting.variable != "NCCL_DEBUG" && setting.origin != Source::AtStart)
        .filter_map(|setting| {
            let UserSetting { variable, value, origin, .. } = setting;
            let message = format!("{variable}={value} ({origin}) stands; {}.", said(setting)?);
            let finding = Finding::info(Id::NotAsPublished, message).about_variables([variable]);
            Some(with_source(finding, profile, variable))
        })
        .collect()
}
