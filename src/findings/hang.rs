//! Whether any tool can show why a job hangs, if it does.

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::installed;
use crate::libraries::nccl::number::strtoll;
use crate::libraries::nccl::ras::{ENABLE, Ras, ras};
use crate::plan::User;
use crate::plan::over_tcp::{Nodes, nodes};
use crate::text::shortened;

/// How many collectives PyTorch's Flight Recorder keeps, which is off with none
/// (`torch/csrc/distributed/c10d/FlightRecorder.hpp`). The second name is that before PyTorch 2.9.
const RECORDERS: [&str; 2] = ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"];

/// What loads NCCL's Inspector, or another profiler.
const PROFILER: &str = "NCCL_PROFILER_PLUGIN";

/// Returns the finding, if a job of several nodes has none of them.
pub(super) fn finding(facts: &Facts, user: &User) -> Option<Finding> {
    let get = |name: &str| user.get(name).map(|setting| setting.value.as_str());
    let records = |name: &&str| get(name).and_then(strtoll).is_some_and(|size| size > 0);
    let has_profiler =
        get(PROFILER).is_some_and(|name| !name.is_empty() && !name.eq_ignore_ascii_case("none"));
    if nodes(facts) != Some(Nodes::Several)
        || installed::is_rccl(facts)
        || has_profiler
        || RECORDERS.iter().any(records)
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
