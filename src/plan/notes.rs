//! What the plan says besides its settings.

use super::remark::Remark;
use crate::fabric::Step;
use crate::libraries::nccl::devices::LIST;

/// Collected while the plan is made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    pub remarks: Vec<Remark>,
    pub tried: Vec<Tried>,
}

/// A rule that was tried for a variable, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    pub variable: &'static str,
    pub rule: String,
    pub result: String,
}

impl Notes {
    pub fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark);
    }

    /// What has narrowed the ports down.
    pub fn steps(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::FarLeftOut(names) => self.tried(
                    LIST,
                    "only the HCAs that are near a GPU (PIX or PXB), as every GPU has one",
                    format!("leaves out {}", names.join(", ")),
                ),
                Step::DefaultRoute { left_out, kept } => {
                    let shown = |(names, what): (Vec<String>, &str)| {
                        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
                    };
                    let results = [(left_out, "leaves out"), (kept, "keeps")].into_iter().filter_map(shown);
                    let rule = "without the HCAs that carry a default route, where the others are enough";
                    self.tried(LIST, rule, results.collect::<Vec<String>>().join(", "));
                }
                Step::Kept(rails) => self.remark(Remark::DefaultRouteRails(rails)),
            }
        }
    }

    pub fn tried(&mut self, variable: &'static str, rule: impl Into<String>, result: impl Into<String>) {
        self.tried.push(Tried { variable, rule: rule.into(), result: result.into() });
    }
}
