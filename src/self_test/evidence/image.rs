//! What the image contains: NCCL, CUDA, libibverbs, its providers, and net plugins.

use super::Evidence;
use super::ports::each_used;
use crate::facts::Facts;
use crate::libraries::nccl::installed;
use crate::libraries::nccl::libibverbs::{self, Libibverbs};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::{Plan, ProfileChoice};

const NO_NCCL: &str = "no NCCL was found in the image";

/// Returns the libibverbs that the job's NCCL loads.
fn of_the_job<'a>(facts: &'a Facts, plan: &Plan) -> Libibverbs<'a> {
    let named = libibverbs::named(|name| plan.value(name), plan.nccl.unwrap_or(NEWEST));
    libibverbs::libibverbs(facts, named)
}

pub(crate) fn libibverbs(facts: &Facts, plan: &Plan) -> Evidence {
    match of_the_job(facts, plan) {
        Libibverbs::Unknown => Evidence::skip(NO_NCCL),
        Libibverbs::Loaded(loaded) => Evidence::of([loaded.path.display().to_string()]),
        Libibverbs::Missing | Libibverbs::NotOne => Evidence::of(None),
    }
}

pub(crate) fn librdmacm(facts: &Facts, _: &Plan) -> Evidence {
    match installed::image(facts) {
        None => Evidence::skip(NO_NCCL),
        // NCCL does not need librdmacm; some plugins and MPI do.
        Some(image) if image.librdmacm.is_empty() => {
            Evidence::skip("not in the image, and NCCL does without it")
        }
        Some(image) => Evidence::of(image.librdmacm.iter().map(|l| l.path.display().to_string())),
    }
}

pub(crate) fn provider(facts: &Facts, plan: &Plan) -> Evidence {
    match of_the_job(facts, plan) {
        Libibverbs::Unknown => Evidence::skip(NO_NCCL),
        _ => each_used(facts, plan, &|hca, _| installed::provider(hca).map(str::to_owned)),
    }
}

pub(crate) fn plugin(facts: &Facts, _: &Plan) -> Evidence {
    match installed::image(facts).map(|image| &image.net_plugins) {
        Some(found) if !found.is_empty() => Evidence::of(found.iter().map(|l| l.path.display().to_string())),
        _ => Evidence::skip("no net plugin was found in the image"),
    }
}

/// Returns the version of NCCL, and the version that the platform requires.
pub(crate) fn nccl(facts: &Facts, plan: &Plan) -> Evidence {
    let found = match (plan.nccl, installed::found(facts)) {
        (_, Some((version, path))) => format!("{version}, {path}"),
        (Some(version), None) => format!("{version}, as the image says (NCCL_VERSION)"),
        (None, None) => return Evidence::skip(NO_NCCL),
    };
    with_minimum(vec![found], plan, |profile| profile.nccl_min.as_deref())
}

/// Returns the version of CUDA, and the version that the platform requires.
pub(crate) fn cuda(facts: &Facts, plan: &Plan) -> Evidence {
    let found = match (&facts.platform.cuda_version, installed::image(facts).map(|image| &image.cuda_runtime))
    {
        (Some(version), _) => vec![format!("{version} (CUDA_VERSION)")],
        (None, Some(found)) if !found.is_empty() => {
            found.iter().map(|library| library.path.display().to_string()).collect()
        }
        _ => return Evidence::skip("no CUDA was found in the image"),
    };
    with_minimum(found, plan, |profile| profile.cuda_min.as_deref())
}

fn with_minimum(
    mut lines: Vec<String>,
    plan: &Plan,
    minimum: fn(&ProfileChoice) -> Option<&str>,
) -> Evidence {
    if let Some(profile) = &plan.profile
        && let Some(minimum) = minimum(profile)
    {
        lines.push(format!("profile {} needs {minimum} or later", profile.name));
    }
    Evidence::of(lines)
}
