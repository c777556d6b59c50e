//! What the image has: NCCL, CUDA, libibverbs, its providers, and net plugins.

use super::Evidence;
use super::ports::each_used;
use crate::facts::Facts;
use crate::libraries::nccl::installed;
use crate::plan::{Plan, ProfileChoice};

const NO_NCCL: &str = "no NCCL was found in the image";

pub fn libibverbs(facts: &Facts, _: &Plan) -> Evidence {
    match installed::image(facts) {
        None => Evidence::skip(NO_NCCL),
        Some(image) => Evidence::of(image.libibverbs_of_the_job().map(|l| l.path.display().to_string())),
    }
}

pub fn librdmacm(facts: &Facts, _: &Plan) -> Evidence {
    match installed::image(facts) {
        None => Evidence::skip(NO_NCCL),
        // NCCL does not need librdmacm; some plugins and MPI do.
        Some(image) if image.librdmacm.is_empty() => {
            Evidence::skip("not in the image, and NCCL does without it")
        }
        Some(image) => Evidence::of(image.librdmacm.iter().map(|l| l.path.display().to_string())),
    }
}

pub fn provider(facts: &Facts, plan: &Plan) -> Evidence {
    match installed::image(facts) {
        None => Evidence::skip(NO_NCCL),
        Some(_) => each_used(facts, plan, &|hca, _| installed::provider(hca).map(str::to_owned)),
    }
}

pub fn plugin(facts: &Facts, _: &Plan) -> Evidence {
    match installed::image(facts).map(|image| &image.net_plugins) {
        Some(found) if !found.is_empty() => Evidence::of(found.iter().map(|l| l.path.display().to_string())),
        _ => Evidence::skip("no net plugin was found in the image"),
    }
}

/// The release of NCCL, and the one that the platform asks for.
pub fn nccl(facts: &Facts, plan: &Plan) -> Evidence {
    let found = match (plan.nccl, installed::found(facts)) {
        (_, Some((version, path))) => format!("{version}, {path}"),
        (Some(version), None) => format!("{version}, as the image says (NCCL_VERSION)"),
        (None, None) => return Evidence::skip(NO_NCCL),
    };
    with_minimum(vec![found], plan, |profile| profile.nccl_min.as_deref())
}

/// The release of CUDA, and the one that the platform asks for.
pub fn cuda(facts: &Facts, plan: &Plan) -> Evidence {
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
