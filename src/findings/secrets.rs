//! Variables that only the command gets, because they may be secrets.

use crate::facts::secret::is_secret;
use crate::finding::{Finding, Id, Source};
use crate::plan::{Plan, Setting, SettingOutcome};
use crate::text::condensed;

/// Reports that a process that enters the container later does not get these variables.
pub(super) fn finding(plan: &Plan) -> Option<Finding> {
    let is_kept_back = |setting: &&Setting| {
        let is_given = setting.outcome == SettingOutcome::Filled || setting.source == Source::Environment;
        is_given && setting.value.is_some() && is_secret(&setting.variable)
    };
    let names: Vec<&str> =
        plan.settings.iter().filter(is_kept_back).map(|setting| setting.variable.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let (their, what, are, them) = match names.as_slice() {
        [_] => ("its name", "a secret", "its value", "it"),
        _ => ("their names", "secrets", "their values", "them"),
    };
    let message = format!(
        "{} may hold {what}, to judge by {their}: rdma-init neither shows {are} nor writes {them} to a file, so processes that enter the container later do not get {them} from rdma-init.",
        condensed(&names)
    );
    Some(Finding::info(Id::KeptBack, message).about_variables(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::facts::settings::{Settings, UserSetting};
    use crate::plan::{self, Options};
    use crate::profiles::Profiles;

    #[test]
    fn the_command_gets_a_secret_that_no_output_shows() {
        let setting = UserSetting::new("NCCL_X_TOKEN", "hunter2", Source::Environment);
        let facts = Facts { settings: Settings(vec![setting]), ..Facts::default() };
        let set =
            [("T_KEY", "hunter2"), ("T_A", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = Options { set: set.into(), ..Options::default() };
        let plan = plan::decide(&facts, &Profiles::load(None).unwrap(), &options).plan;
        assert_eq!(plan.filled().collect::<Vec<_>>(), [("T_KEY", "hunter2"), ("T_A", "1")]);
        assert_eq!(plan.public().collect::<Vec<_>>(), [("T_A", "1")]);
        assert_eq!(plan.inherited().count(), 0);
        let shown = format!("{plan:?} {}", serde_json::to_string(&plan).unwrap());
        assert!(!shown.contains("hunter2") && shown.contains("(not shown)"), "{shown}");
        assert!(finding(&plan).unwrap().message.contains("NCCL_X_TOKEN, T_KEY"));
    }
}
