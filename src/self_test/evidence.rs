//! What each quick check looks at, and what it has to say that no finding says.

use super::check::Outcome;
use crate::check::memlock::{self, Pinning, amount};
use crate::facts::Facts;
use crate::facts::limits::{Amount, Limit};
use crate::facts::rdma::{Hca, LinkLayer, Port};
use crate::nccl::libraries;
use crate::nccl::predict::{Bootstrap, Transport};
use crate::plan::{Fabric, Plan, own_slots};
use crate::report::style::{condensed, counted};

/// What was looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    pub lines: Vec<String>,
    /// Why there is nothing to check here.
    pub skip: Option<String>,
    /// What is wrong, with the fix.
    pub wrong: Option<(Outcome, String, String)>,
}

impl Evidence {
    fn of(lines: impl IntoIterator<Item = String>) -> Evidence {
        Evidence { lines: lines.into_iter().collect(), ..Evidence::default() }
    }

    fn skip(why: &str) -> Evidence {
        Evidence { skip: Some(why.to_owned()), ..Evidence::default() }
    }

    fn warn(self, message: String, fix: &str) -> Evidence {
        Evidence { wrong: Some((Outcome::Warning, message, fix.to_owned())), ..self }
    }
}

/// Open files for each rank of a large job.
const FEW_FILES: u64 = 4096;

/// Bytes; what threads of NCCL and of frameworks are known to be short of.
const SMALL_STACK: u64 = 1024 * 1024;

pub fn of(id: &str, facts: &Facts, plan: &Plan) -> Evidence {
    let image = libraries::image(facts);
    match id {
        "memlock" => Evidence::of(facts.limits.memlock.map(|limit| {
            let lifted = match memlock::pinning(limit, &facts.process) {
                Pinning::Capability => ", and CAP_IPC_LOCK lifts it",
                Pinning::Limited(_) | Pinning::Unlimited => "",
            };
            format!("{}{lifted}", limits(limit, amount))
        })),
        "nofile" => few(
            facts.limits.nofile,
            FEW_FILES,
            "Only {} files may be open, which a large job needs more of (\"Too many open files\").",
            "Docker: --ulimit nofile=1048576:1048576. containerd: LimitNOFILE=infinity in its unit.",
            |count| count.to_string(),
        ),
        "stack" => few(
            facts.limits.stack,
            SMALL_STACK,
            "Only {} of stack: threads of NCCL and of the framework may end with a segmentation fault.",
            "Docker: --ulimit stack=67108864:67108864.",
            amount,
        ),
        "shared-memory" => match facts.shm {
            Some(shm) => Evidence::of([format!("{}, {} free", amount(shm.size), amount(shm.available))]),
            None => Evidence::skip("there is no /dev/shm"),
        },
        "shared-memory-writable" => match facts.shm.and_then(|shm| shm.writable) {
            None => Evidence::skip("not known"),
            Some(true) => Evidence::of(["this user may make files in it".to_owned()]),
            Some(false) => Evidence {
                wrong: Some((
                    Outcome::Failed,
                    "This user may not make files in /dev/shm, which NCCL needs between the GPUs of a node."
                        .to_owned(),
                    "Mount it with mode 1777, or run as another user.".to_owned(),
                )),
                ..Evidence::default()
            },
        },
        "libibverbs" => match image {
            None => Evidence::skip("no NCCL was found in the image"),
            Some(image) => Evidence::of(image.libibverbs_of_the_job().map(|l| l.path.display().to_string())),
        },
        "librdmacm" => match image {
            None => Evidence::skip("no NCCL was found in the image"),
            // NCCL does without it; some plugins and MPI do not.
            Some(image) if image.librdmacm.is_empty() => {
                Evidence::skip("not in the image, and NCCL does without it")
            }
            Some(image) => Evidence::of(image.librdmacm.iter().map(|l| l.path.display().to_string())),
        },
        "provider" if image.is_none() => Evidence::skip("no NCCL was found in the image"),
        "provider" => each_used(facts, plan, |hca, _| libraries::provider(hca).map(str::to_owned)),
        "nccl" => match (plan.nccl, libraries::found(facts)) {
            (_, Some((version, path))) => Evidence::of([format!("{version}, {path}")]),
            (Some(version), None) => Evidence::of([format!("{version}, as the image says (NCCL_VERSION)")]),
            (None, None) => Evidence::skip("no NCCL was found in the image"),
        },
        "cuda" => match (&facts.platform.cuda_version, image.map(|image| &image.cuda_runtime)) {
            (Some(version), _) => Evidence::of([format!("{version} (CUDA_VERSION)")]),
            (None, Some(found)) if !found.is_empty() => {
                Evidence::of(found.iter().map(|l| l.path.display().to_string()))
            }
            _ => Evidence::skip("no CUDA was found in the image"),
        },
        "plugin" => match image.map(|image| &image.net_plugins) {
            Some(found) if !found.is_empty() => {
                Evidence::of(found.iter().map(|l| l.path.display().to_string()))
            }
            _ => Evidence::skip("there is none"),
        },
        "unused" => unused(plan),
        "uverbs" => {
            each_used(facts, plan, |hca, _| hca.uverbs.as_ref().map(|_| "its node can be opened".to_owned()))
        }
        "port" => each_used(facts, plan, |_, port| Some(format!("{}, {}", port.state, port.physical_state))),
        "device" => each_used(facts, plan, |hca, port| {
            let driver = hca.driver.as_deref().unwrap_or("no driver");
            Some(format!("{driver}, {}", String::from(port.link_layer.clone())))
        }),
        "rate" => each_used(facts, plan, |_, port| Some(port.rate.clone())),
        "pci-link" => pci_links(facts, plan),
        "gid" => match used(facts, plan).any(|(_, port)| port.link_layer == LinkLayer::Ethernet) {
            false => Evidence::skip("no RoCE port is in use"),
            true => each_used(facts, plan, |_, port| {
                let gid = own_slots(facts, port).into_iter().next()?;
                Some(format!("slot {}, {}", gid.index, String::from(gid.kind.clone())))
            }),
        },
        "mtu" => mtus(facts, plan),
        "route" => {
            Evidence::of(rails(facts, plan).map(|(hca, interface, _)| format!("{}: {interface}", hca.name)))
        }
        "gpudirect" => match (facts.gpu.count, &facts.gpu.peer_memory) {
            (None, _) => Evidence::skip("no NVIDIA GPU"),
            (_, Some(path)) => Evidence::of([path.clone()]),
            (_, None) if facts.gpu.driver.is_none() => Evidence::skip("the driver does not tell its kind"),
            (_, None) => Evidence::of(facts.gpu.driver.clone()),
        },
        "interface" => match plan.forecasts.last().map(|forecast| &forecast.prediction.bootstrap) {
            Some(Bootstrap::On(endpoint)) => {
                Evidence::of([format!("{} {}", endpoint.interface, endpoint.address)])
            }
            Some(Bootstrap::Fails(message)) => Evidence {
                wrong: Some((Outcome::Failed, format!("NCCL will end with {message:?}."), String::new())),
                ..Evidence::default()
            },
            Some(Bootstrap::DependsOnName(name)) => Evidence::of([format!("in the subnet of {name}")]),
            None => Evidence::skip("there is no RDMA here"),
        },
        "nccl-decides" => nccl(plan),
        "count" => match facts.gpu.count {
            None => Evidence::skip("no NVIDIA GPU"),
            Some(count) => Evidence::of([counted(count as usize, "GPU")]),
        },
        "fabric" => match &plan.fabric {
            Fabric::Verbs => Evidence::of(["InfiniBand or RoCE through verbs".to_owned()]),
            Fabric::Interface(name) => Evidence::of([format!("behind the interface {name}")]),
            Fabric::Plugin(count) => Evidence::of([format!("{count} devices for a net plugin")]),
            Fabric::None(why) => Evidence {
                wrong: Some((Outcome::Failed, format!("The job will run on TCP: {why}."), String::new())),
                ..Evidence::default()
            },
        },
        _ => Evidence::default(),
    }
}

/// The ports that the plan uses.
pub fn used<'a>(facts: &'a Facts, plan: &'a Plan) -> impl Iterator<Item = (&'a Hca, &'a Port)> {
    plan.ports.iter().filter(|verdict| verdict.used).filter_map(|verdict| {
        let hca = facts.rdma.iter().find(|hca| hca.name == verdict.hca)?;
        Some((hca, hca.ports.iter().find(|port| port.number == verdict.port)?))
    })
}

/// Why the other ports are not used.
fn unused(plan: &Plan) -> Evidence {
    let mut why: Vec<(&str, Vec<&str>)> = Vec::new();
    for verdict in plan.ports.iter().filter(|verdict| !verdict.used) {
        let reason = verdict.reason.as_deref().unwrap_or("not wanted");
        match why.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(&verdict.hca),
            None => why.push((reason, vec![&verdict.hca])),
        }
    }
    match why.is_empty() {
        true => Evidence::skip("there are none"),
        false => Evidence::of(why.iter().map(|(reason, names)| format!("{}: {reason}", condensed(names)))),
    }
}

/// A line for each thing that is said, with the ports that it is said of.
fn each_used(facts: &Facts, plan: &Plan, say: impl Fn(&Hca, &Port) -> Option<String>) -> Evidence {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for (hca, port) in used(facts, plan) {
        let Some(text) = say(hca, port) else { continue };
        match said.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(&hca.name),
            None => said.push((text, vec![&hca.name])),
        }
    }
    match (said.is_empty(), used(facts, plan).next()) {
        (_, None) => Evidence::skip("no port is in use"),
        (true, _) => Evidence::skip("the devices do not tell"),
        _ => Evidence::of(said.iter().map(|(text, names)| format!("{}: {text}", condensed(names)))),
    }
}

/// What every release does, or the one that is known.
fn nccl(plan: &Plan) -> Evidence {
    let Some(forecast) = plan.forecasts.last() else { return Evidence::skip("there is no RDMA here") };
    match &forecast.prediction.transport {
        Transport::Verbs(ports) => Evidence::of([format!("it will use {}", counted(ports.len(), "port"))]),
        Transport::Plugin { file, .. } => Evidence::of([format!("it will load {file}")]),
        Transport::Sockets { interfaces, .. } if !plan.fabric.pins_memory() => {
            Evidence::of([format!("it will use sockets on {}", interfaces.join(", "))])
        }
        Transport::Sockets { why, .. } => Evidence {
            wrong: Some((Outcome::Failed, format!("NCCL will run on TCP: {why}."), String::new())),
            ..Evidence::default()
        },
        Transport::Fails(message) => Evidence {
            wrong: Some((Outcome::Failed, format!("NCCL will end with {message:?}."), String::new())),
            ..Evidence::default()
        },
    }
}

fn limits(limit: Limit, show: impl Fn(u64) -> String) -> String {
    let shown = |amount| match amount {
        Amount::Limited(number) => show(number),
        Amount::Unlimited(_) => "unlimited".to_owned(),
    };
    format!("soft {}, hard {}", shown(limit.soft), shown(limit.hard))
}

fn few(limit: Option<Limit>, least: u64, message: &str, fix: &str, show: impl Fn(u64) -> String) -> Evidence {
    let Some(limit) = limit else { return Evidence::skip("the kernel does not tell") };
    let evidence = Evidence::of([limits(limit, &show)]);
    match limit.soft {
        Amount::Limited(number) if number < least => evidence.warn(message.replace("{}", &show(number)), fix),
        _ => evidence,
    }
}

fn pci_links(facts: &Facts, plan: &Plan) -> Evidence {
    let evidence = each_used(facts, plan, |hca, _| {
        let link = hca.pci_link.as_ref()?;
        Some(format!("{} x{}", link.speed, link.width.unwrap_or(0)))
    });
    let slow: Vec<String> = used(facts, plan)
        .filter_map(|(hca, _)| {
            let link = hca.pci_link.as_ref().filter(|link| link.is_degraded())?;
            let lanes = |width: Option<u32>| width.map(|w| format!(" x{w}")).unwrap_or_default();
            Some(format!(
                "{} at {}{} of {}{}",
                hca.name,
                link.speed,
                lanes(link.width),
                link.most_speed,
                lanes(link.most_width)
            ))
        })
        .collect();
    match slow.is_empty() {
        true => evidence,
        false => evidence.warn(
            format!("PCI links run below their best: {}.", slow.join("; ")),
            "Reseat the card, check the slot and the firmware; other nodes wait for this one.",
        ),
    }
}

/// The interfaces that own the GIDs of the used RoCE ports, with their MTU in bytes.
pub fn rails<'a>(facts: &'a Facts, plan: &'a Plan) -> impl Iterator<Item = (&'a Hca, &'a str, Option<u32>)> {
    used(facts, plan).filter_map(|(hca, port)| {
        let gid = own_slots(facts, port).into_iter().next()?;
        let has = |net: &ipnet::IpNet| net.addr() == gid.address();
        let interface = facts.net.interfaces.iter().find(|i| i.addresses.iter().any(has))?;
        Some((hca, interface.name.as_str(), interface.mtu))
    })
}

fn mtus(facts: &Facts, plan: &Plan) -> Evidence {
    let found: Vec<(&Hca, &str, Option<u32>)> = rails(facts, plan).collect();
    if found.is_empty() {
        return Evidence::skip("no RoCE port with an interface of this container is in use");
    }
    let evidence = each_used(facts, plan, |hca, _| {
        let (_, _, mtu) = found.iter().find(|(rail, _, _)| rail.name == hca.name)?;
        mtu.map(|mtu| mtu.to_string())
    });
    let first = found[0].2;
    match found.iter().all(|(_, _, mtu)| *mtu == first) {
        true => evidence,
        false => evidence.warn(
            "The interfaces of the rails have different MTUs, and the path of a rail has the smallest on its way.".to_owned(),
            "Set one MTU on all interfaces of the fabric, here and on the switches (4200 or more for RoCE with 4096).",
        ),
    }
}
