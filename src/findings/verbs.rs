//! libibverbs and its providers: which of them NCCL cannot load from the image.

use super::kernel_abi;
use super::values::shown;
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::image::Image;
use crate::image::named::IBVERBS_LIB;
use crate::libraries::nccl::installed;
use crate::libraries::nccl::libibverbs::{self, Libibverbs, Loaded};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::{Plan, PortVerdict, User};
use crate::text::condensed;

const INSTALL: &str =
    "Install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or rdma-core and libibverbs in the image.";

pub(super) fn findings(facts: &Facts, user: &User, plan: &Plan) -> Vec<Finding> {
    let named = libibverbs::named(|name| plan.value(name), plan.nccl.unwrap_or(NEWEST));
    // A user who reads about a value needs to know where it comes from.
    let setting = user.get(IBVERBS_LIB).filter(|_| named.is_some());
    match libibverbs::libibverbs(facts, named) {
        Libibverbs::Loaded(loaded) => {
            let fallen_back = setting.filter(|_| libibverbs::is_missing(facts, named));
            let mut findings: Vec<Finding> =
                fallen_back.map(|setting| goes_on(plan, setting, &loaded)).into_iter().collect();
            findings.extend(no_provider(facts, &loaded, plan));
            findings.extend(kernel_abi::findings(facts, &loaded, plan));
            findings
        }
        Libibverbs::Missing => facts.image.iter().map(|image| missing(plan, image, setting)).collect(),
        Libibverbs::NotOne => setting.map(|setting| not_one(plan, setting)).into_iter().collect(),
        Libibverbs::Unknown => facts.image.iter().filter_map(not_seen).collect(),
    }
}

fn missing(plan: &Plan, image: &Image, setting: Option<&UserSetting>) -> Finding {
    let library = plan.library;
    let elsewhere = match image.libibverbs.first() {
        Some(library) => {
            format!(" (the dynamic loader does not search where {} is)", library.path.display())
        }
        None => String::new(),
    };
    let named = match setting {
        Some(setting) => format!("{}: the dynamic loader finds no library there. ", shown(setting)),
        None => String::new(),
    };
    Finding::error(
        Id::NoLibibverbs,
        format!("{named}The image has no libibverbs that {library} can load{elsewhere}: {library} says \"Failed to open libibverbs.so[.1]\", and the job runs on TCP."),
    )
    .about_variables(setting.map(|setting| &setting.variable))
    .with_fix(INSTALL)
}

/// Reports that the variable names a library with none of the functions that NCCL looks up.
fn not_one(plan: &Plan, setting: &UserSetting) -> Finding {
    let library = plan.library;
    let what = match setting.value.is_empty() {
        true => format!(
            "{} is set but empty ({}): {library} looks for libibverbs' functions in the program itself, and tries no library",
            setting.variable, setting.origin
        ),
        false => {
            format!("{}: this library is not libibverbs, and {library} does not try another", shown(setting))
        }
    };
    Finding::error(Id::NoLibibverbs, format!("{what}, so the job runs on TCP."))
        .about_variables([&setting.variable])
        .with_fix(format!("Write the path of libibverbs.so.1, or remove {}.", setting.variable))
}

fn goes_on(plan: &Plan, setting: &UserSetting, loaded: &Loaded) -> Finding {
    Finding::warning(
        Id::MissingFile,
        format!(
            "{}: the dynamic loader finds no library there; {} continues with {}.",
            shown(setting),
            plan.library,
            loaded.path.display()
        ),
    )
    .about_variables([&setting.variable])
    .with_fix(format!(
        "Write the path of a libibverbs.so.1 that the image has, or remove {}.",
        setting.variable
    ))
}

/// Reports an image for CUDA that has no libibverbs, and in which no NCCL was found. The job's own NCCL may
/// be linked into a program or library. An image without CUDA may not be the image that the job runs in.
fn not_seen(image: &Image) -> Option<Finding> {
    let is_for_cuda = !image.cuda_runtime.is_empty() && !image.has_nccl();
    (is_for_cuda && image.libibverbs.is_empty()).then(|| {
        Finding::warning(
            Id::NoLibibverbs,
            "The image has no libibverbs, and no NCCL was found in it: an NCCL that is linked into a program says \"Failed to open libibverbs.so[.1]\", and the job runs on TCP.",
        )
        .with_fix(INSTALL)
    })
}

/// Reports HCAs that libibverbs does not list, because it cannot load their provider.
fn no_provider(facts: &Facts, verbs: &Loaded, plan: &Plan) -> Option<Finding> {
    let is_used = |name: &str| plan.ports.iter().any(|port| port.used && port.hca == name);
    let has_none =
        |hca: &&Hca| installed::provider(hca).is_some_and(|provider| verbs.provider(provider).is_none());
    let without: Vec<_> = facts.rdma.iter().filter(|hca| is_used(&hca.name) && has_none(hca)).collect();
    let first = without.first()?;
    let provider = installed::provider(first)?;
    let names: Vec<&str> = without.iter().map(|hca| hca.name.as_str()).collect();
    let there = verbs.providers.iter().find(|known| known.name == provider);
    let folder = verbs.configuration.display();
    let what = match there {
        None => "is not in the image".to_owned(),
        Some(known) if known.path.is_none() => {
            format!("is named in {folder}, but its library is not in the image")
        }
        Some(known) if known.named_by.is_empty() => {
            format!("is in the image, but no file in {folder} names it (\"driver {provider}\")")
        }
        Some(known) => format!(
            "is built for another libibverbs (for rdmav{}, but the libibverbs of the image loads rdmav{})",
            known.abi.unwrap_or(0),
            verbs.abi.unwrap_or(0)
        ),
    };
    let all = plan.ports.iter().filter(|port| port.used).all(|port| names.contains(&port.hca.as_str()));
    let consequence = if all { "the job runs on TCP" } else { "the job runs on the other HCAs" };
    let fix = match provider {
        "ionic" => {
            "Install in the image AMD's libionic1 of the same release as the node's driver, or ibverbs-providers of rdma-core 61 or later if the node has the driver of the Linux kernel."
        }
        "erdma" => {
            "Install the vendor's eRDMA packages in the image: libibverbs1 and ibverbs-providers of the same rdma-core."
        }
        _ => &format!(
            "Install ibverbs-providers in the image, from the same rdma-core as libibverbs1 and with its files in {folder}."
        ),
    };
    Some(
        Finding::error(
            Id::NoProvider,
            format!(
                "The provider {provider} of libibverbs {what}: {} does not see {}, and {consequence}.",
                plan.library,
                condensed(&names)
            ),
        )
        .about_ports(
            plan.ports.iter().filter(|port| names.contains(&port.hca.as_str())).map(PortVerdict::full_name),
        )
        .with_fix(fix),
    )
}
