//! Variables that `nccl.conf` cannot contain, and files that cannot be written.

use std::path::Path;

use crate::finding::{Finding, Id};
use crate::libraries::{self, nccl::conf};
use crate::plan::Plan;

/// Reports the variables that a process that enters the container must get in another way.
pub(crate) fn findings(plan: &Plan) -> Vec<Finding> {
    // The file is not meant for variables of other libraries.
    let unfit = plan
        .public()
        .chain(plan.inherited())
        .filter(|(name, value)| !conf::fits(name, value) && libraries::of_variable(name).is_none());
    let finding = |(name, value): (&str, &str)| {
        let why = match value.len() > conf::LONGEST {
            true => {
                format!("its {} bytes exceed the {} that {} reads", value.len(), conf::LONGEST, plan.library)
            }
            false => "its value has a line break".to_owned(),
        };
        let message = format!("nccl.conf does not contain {name}, because {why}.");
        let fix = fix(plan, name);
        Finding::warning(Id::NcclConfValue, message).about_variables([name]).with_fix(fix)
    };
    unfit.map(finding).collect()
}

fn fix(plan: &Plan, name: &str) -> String {
    let is_filled = plan.public().any(|(filled, _)| filled == name);
    // The file for shells has no variable that the user has set.
    let or_shell = if is_filled { ", or let a shell source /run/rdma-init/env.sh" } else { "" };
    format!("Start processes that enter the container with rdma-init exec{or_shell}.")
}

/// Reports the files, given below the root, that cannot be written for this reason. `state` is a file with
/// the same lines that only this container can write to.
pub(crate) fn not_written(files: &[&str], why: &str, state: Option<&Path>) -> Finding {
    let names: Vec<String> = files.iter().map(|file| format!("/{file}")).collect();
    let message = format!(
        "The variables cannot be written to {} for processes that enter the container later: {why}.",
        names.join(" and ")
    );
    let fix = match (state, files) {
        (Some(state), [file, ..]) => {
            let state = state.display();
            format!(
                "Put ENV NCCL_CONF_FILE={state} (NCCL 2.23 and later) or ln -s {state} /{file} into the image, or start these processes with rdma-init exec."
            )
        }
        _ => "Start them with rdma-init exec.".to_owned(),
    };
    Finding::info(Id::NcclConfNotWritten, message).with_fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::facts::settings::UserSetting;
    use crate::finding::Source;
    use crate::plan::{self, Options};
    use crate::profiles::Profiles;

    #[test]
    fn files_that_cannot_be_written_for_one_reason_are_one_finding() {
        let found = not_written(&["etc/nccl.conf", "etc/rccl.conf"], "EACCES (Permission denied)", None);
        assert_eq!(
            found.message,
            "The variables cannot be written to /etc/nccl.conf and /etc/rccl.conf for processes that enter the container later: EACCES (Permission denied)."
        );
        assert_eq!(found.fix.as_deref(), Some("Start them with rdma-init exec."));
        let state = Path::new("/run/rdma-init/nccl.conf");
        let fix = not_written(&["etc/nccl.conf"], "no", Some(state)).fix.unwrap();
        assert!(fix.starts_with("Put ENV NCCL_CONF_FILE=/run/rdma-init/nccl.conf"), "{fix}");
        assert!(fix.ends_with("or start these processes with rdma-init exec."), "{fix}");
    }

    #[test]
    fn the_file_for_shells_is_named_for_what_rdma_init_has_filled_in() {
        let set = [("NCCL_DEBUG_FILE".to_owned(), "1\n2".to_owned())].into();
        let mut facts = Facts::default();
        facts.settings.0.push(UserSetting::new("NCCL_DEBUG", "INFO\nx", Source::Environment));
        let options = Options { set, ..Options::default() };
        let plan = plan::decide(&facts, &Profiles::load(None).unwrap(), &options).plan;
        let fixes: Vec<String> = findings(&plan).into_iter().filter_map(|finding| finding.fix).collect();
        let exec = "Start processes that enter the container with rdma-init exec";
        let both = [format!("{exec}, or let a shell source /run/rdma-init/env.sh."), format!("{exec}.")];
        assert_eq!(fixes, both);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let values = [("A", "1"), ("B", "1\n2"), ("C", &"x".repeat(1024)), ("D", &"x".repeat(1023))];
        let set = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let options = Options { set, ..Options::default() };
        let plan = plan::decide(&Facts::default(), &Profiles::load(None).unwrap(), &options).plan;
        let messages: Vec<String> = findings(&plan).into_iter().map(|finding| finding.message).collect();
        assert_eq!(
            messages,
            [
                "nccl.conf does not contain B, because its value has a line break.",
                "nccl.conf does not contain C, because its 1024 bytes exceed the 1023 that NCCL reads.",
            ]
        );
    }
}
