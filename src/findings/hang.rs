//! Whether a tool can show why a job hangs, if it does.

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::installed;
use crate::libraries::nccl::number::strtoll;
use crate::libraries::nccl::ras::{ENABLE, Ras, ras};
use crate::plan::User;
use crate::plan::over_tcp::{Nodes, nodes};
use crate::text::shortened;

/// The number of collectives that PyTorch's Flight Recorder keeps; 0 turns it off
/// (`torch/csrc/distributed/c10d/FlightRecorder.hpp`). The second name is the one before PyTorch 2.9.
const RECORDERS: [&str; 2] = ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"];

/// From this release of PyTorch on, the Flight Recorder is on without a variable (pull request 172843).
const RECORDS_BY_ITSELF: (u32, u32) = (2, 11);

/// What loads NCCL's Inspector, or another profiler.
const PROFILER: &str = "NCCL_PROFILER_PLUGIN";

/// Returns the finding, if a job with several nodes has none of these tools.
pub(super) fn finding(facts: &Facts, user: &User) -> Option<Finding> {
    let get = |name: &str| user.get(name).map(|setting| setting.value.as_str());
    let torch = facts.image.as_ref().and_then(|image| image.torch.as_ref()?.version.as_deref());
    let has_profiler =
        get(PROFILER).is_some_and(|name| !name.is_empty() && !name.eq_ignore_ascii_case("none"));
    if nodes(facts) != Some(Nodes::Several)
        || installed::is_rccl(facts)
        || has_profiler
        || records(get, torch)
    {
        return None;
    }
    let (why, fix, variable) = match ras(get, user.version()) {
        Ras::At(_) => return None,
        Ras::Off(value) => (
            format!("NCCL's RAS is off ({ENABLE}={})", shortened(value)),
            format!("Remove {ENABLE}: RAS is on by default."),
            Some(ENABLE),
        ),
        Ras::TooOld(version) => (
            format!("NCCL {version} has no RAS"),
            "Use NCCL 2.24 or later, whose RAS knows what each rank does.".to_owned(),
            None,
        ),
    };
    let [recorder, earlier] = RECORDERS;
    let message = format!(
        "If the job hangs, no tool can tell which rank stopped: {why}, and neither PyTorch's Flight Recorder ({recorder}) nor a profiler plugin such as NCCL's Inspector ({PROFILER}) is on."
    );
    Some(
        Finding::info(Id::NoHangDiagnosis, message)
            .about_variables(variable.into_iter().chain([recorder, PROFILER]))
            .with_fix(format!(
                "{fix} Or, with PyTorch, set {recorder}=2000 on all nodes (before PyTorch 2.9: {earlier}=2000)."
            )),
    )
}

/// Returns whether the Flight Recorder of this release of PyTorch is on. An unknown release counts as an old one.
fn records<'v>(get: impl Fn(&str) -> Option<&'v str>, torch: Option<&str>) -> bool {
    let mut sizes = RECORDERS.iter().filter_map(|name| get(name)).peekable();
    if sizes.peek().is_some() {
        return sizes.filter_map(strtoll).any(|size| size > 0);
    }
    let mut numbers = torch.unwrap_or_default().split('.').map_while(|number| number.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|release| release >= RECORDS_BY_ITSELF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorder_is_on_by_a_variable_or_by_the_release() {
        let with = |variable: usize, size: Option<&'static str>, torch| {
            records(|name| size.filter(|_| name == RECORDERS[variable]), torch)
        };
        for variable in 0..2 {
            assert!(with(variable, Some("2000"), None) && with(variable, Some("1"), Some("2.4.0+cu121")));
            assert!(!with(variable, Some("0"), Some("2.12.0")) && !with(variable, Some(""), None));
        }
        for (torch, is_on) in
            [("2.10.1", false), ("2.11.0+cu128", true), ("3.0", true), ("2.12.0a0+git1", true), ("2", false)]
        {
            assert_eq!(with(0, None, Some(torch)), is_on, "{torch}");
        }
        assert!(!with(0, None, None));
    }
}
