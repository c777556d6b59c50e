//! The parts of a report that `compare` reads. It skips the long parts, such as the evidence, without
//! copying them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::self_test::check::{Check, Outcome};
use crate::self_test::report::{Nvlink, Rail, Report};

/// The parts of a [`Report`](crate::self_test::report::Report) that are read. A report without one of
/// these fields cannot be read: then nothing is known about that node, which is not the same as `None`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Brief {
    pub schema: String,
    pub host: String,
    pub passed: bool,
    pub hcas: Vec<Rail>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub nccl: Option<String>,
    #[serde(deserialize_with = "Option::deserialize")]
    pub profile: Option<String>,
    /// Reports from earlier versions do not contain it, and most nodes are in no such domain.
    #[serde(default)]
    pub nvlink: Option<Nvlink>,
    /// Reports from earlier versions do not contain it, and most nodes have none.
    #[serde(default)]
    pub nvlink_domain: Option<String>,
    /// Reports from earlier versions do not contain it, and most nodes have none.
    #[serde(default)]
    pub placement_group: Option<String>,
    pub filled: BTreeMap<String, String>,
    /// Reports from earlier versions do not contain it.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    pub checks: Vec<CheckVerdict>,
}

/// A check that ran or was skipped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckVerdict {
    pub id: String,
    pub outcome: Outcome,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl From<&Report> for Brief {
    fn from(report: &Report) -> Brief {
        let verdict = |check: &Check| CheckVerdict {
            id: check.id.clone(),
            outcome: check.outcome,
            message: check.message.clone().filter(|_| check.outcome == Outcome::Failed),
        };
        Brief {
            schema: report.schema.clone(),
            host: report.host.clone(),
            passed: report.passed,
            hcas: report.hcas.clone(),
            nccl: report.nccl.clone(),
            profile: report.profile.clone(),
            nvlink: report.nvlink.clone(),
            nvlink_domain: report.nvlink_domain.clone(),
            placement_group: report.placement_group.clone(),
            filled: report.filled.clone(),
            set: report.set.clone(),
            checks: report.checks.iter().map(verdict).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::report::SCHEMA;

    #[test]
    fn it_reads_what_a_self_test_writes() {
        let check = Check {
            id: "memlock".into(),
            title: "pinned memory".into(),
            outcome: Outcome::Failed,
            subject: None,
            evidence: vec!["64 KiB".into()],
            message: None,
            fix: None,
            took_us: 3,
            is_in_plan: false,
        };
        let report = Report {
            schema: SCHEMA.into(),
            host: "node001".into(),
            hcas: vec![Rail { hca: "mlx5_0".into(), ..Rail::default() }],
            checks: vec![check],
            ..Report::default()
        };
        let text = serde_json::to_string(&report).unwrap();
        let brief: Brief = serde_json::from_str(&text).unwrap();
        assert_eq!((brief.schema.as_str(), brief.host.as_str()), (SCHEMA, "node001"));
        assert_eq!(brief.hcas[0].hca, "mlx5_0");
        assert_eq!((brief.checks[0].id.as_str(), brief.checks[0].outcome), ("memlock", Outcome::Failed));
        assert_eq!(brief.nccl, None);
    }

    #[test]
    fn a_field_that_is_absent_is_an_error() {
        let mut report = serde_json::to_value(Report::default()).unwrap();
        report.as_object_mut().unwrap().remove("nccl");
        let error = serde_json::from_str::<Brief>(&report.to_string()).unwrap_err();
        assert!(error.to_string().contains("missing field `nccl`"), "{error}");
    }
}
