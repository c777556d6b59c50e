//! Variables that `nccl.conf` cannot hold.

use crate::finding::{Finding, Id};
use crate::libraries::{self, nccl::conf};
use crate::plan::Plan;

/// A process that enters the container gets them in another way only.
pub fn findings(plan: &Plan) -> Vec<Finding> {
    let unfit = plan.public().chain(plan.inherited()).filter(|(name, value)| {
        // Those of other libraries are not meant for it.
        !conf::fits(name, value) && libraries::of_variable(name).is_none()
    });
    let finding = |(name, value): (&str, &str)| {
        let why = match value.len() > conf::LONGEST {
            true => format!("its {} bytes are more than the {} that NCCL reads", value.len(), conf::LONGEST),
            false => "its value has a line break".to_owned(),
        };
        let message = format!("{name} is left out of nccl.conf, because {why}.");
        Finding::warning(Id::NcclConfValue, message).about_variables([name]).with_fix(
            "Start processes that enter the container with rdma-init exec, or let a shell source /run/rdma-init/env.sh.",
        )
    };
    unfit.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::plan::{self, Options};
    use crate::profiles::Profiles;

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
                "B is left out of nccl.conf, because its value has a line break.",
                "C is left out of nccl.conf, because its 1024 bytes are more than the 1023 that NCCL reads.",
            ]
        );
    }
}
