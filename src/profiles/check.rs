//! What the format of a profile does not rule out by itself.

use super::format::{Condition, Profile};
use crate::facts::environment::is_variable_name;

/// Errors that the format alone does not rule out.
pub(super) fn check(profile: &Profile) -> Result<(), String> {
    let reserved = ["auto", "none"];
    if profile.name.is_empty() || reserved.contains(&profile.name.as_str()) {
        return Err(format!("key \"name\": {:?} cannot be the name of a profile", profile.name));
    }
    for (variable, value) in &profile.variables {
        if !is_variable_name(variable) || value.contains('\0') {
            return Err(format!("key \"variables\": {variable:?} cannot be an environment variable"));
        }
    }
    let others = profile.unset.iter().chain(&profile.companions);
    if let Some(name) = others.into_iter().find(|name| !is_variable_name(name)) {
        return Err(format!("keys \"unset\" and \"companions\": {name:?} is not the name of a variable"));
    }
    for (variable, source) in &profile.from_environment {
        if !is_variable_name(variable) || !is_variable_name(source) {
            return Err(format!(
                "key \"from-environment\": {variable:?} = {source:?} must have two names of variables"
            ));
        }
    }
    for only in &profile.only {
        if let Some((name, _)) =
            only.variables.iter().find(|(name, value)| !is_variable_name(name) || value.contains('\0'))
        {
            return Err(format!("key \"only\": {name:?} cannot be an environment variable"));
        }
        if only.condition == Condition::default() && only.nccl_min.is_none() {
            return Err("key \"only\": a table without a condition belongs in \"variables\"".to_owned());
        }
        if only.nccl_min.as_ref().is_some_and(|release| !is_release(release)) {
            return Err("key \"only\": \"nccl-min\" must be a release such as \"2.27\"".to_owned());
        }
    }
    if let Some(file) = profile.files().find(|file| !file.starts_with('/') || file.contains(['*', '\0'])) {
        return Err(format!("{file:?} must be the absolute path of a file, without \"*\""));
    }
    if profile.evidence.iter().any(|condition| !condition.has_positive()) {
        return Err(
            "key \"auto\": a table without a condition other than \"not\" would match every host".to_owned()
        );
    }
    Ok(())
}

/// `2.27` or `2.27.3`.
fn is_release(text: &str) -> bool {
    let mut parts = text.split('.');
    (2..=3).contains(&parts.clone().count()) && parts.all(|part| part.parse::<u16>().is_ok())
}
