//! The releases of NCCL and CUDA, beside what the platform asks for.

use super::Evidence;
use crate::facts::Facts;
use crate::nccl::libraries;
use crate::plan::{Plan, ProfileChoice};

pub fn nccl(facts: &Facts, plan: &Plan) -> Evidence {
    let found = match (plan.nccl, libraries::found(facts)) {
        (_, Some((version, path))) => format!("{version}, {path}"),
        (Some(version), None) => format!("{version}, as the image says (NCCL_VERSION)"),
        (None, None) => return Evidence::skip("no NCCL was found in the image"),
    };
    with_minimum(vec![found], plan, |profile| profile.nccl_min.as_deref())
}

pub fn cuda(facts: &Facts, plan: &Plan) -> Evidence {
    let found = match (&facts.platform.cuda_version, libraries::image(facts).map(|image| &image.cuda_runtime))
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
