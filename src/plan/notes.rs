//! What the plan reports besides its settings.

use super::hcas;
use crate::fabric::NarrowingStep;
use crate::finding::Finding;
use crate::libraries::nccl::devices::LIST;
use crate::text::condensed;

/// A rule that was tried for a variable, and the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    pub variable: &'static str,
    pub rule: String,
    pub result: String,
}

/// The findings and the tried rules that the plan collects while it decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    pub findings: Vec<Finding>,
    pub tried: Vec<Tried>,
}

impl Notes {
    pub fn report(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub fn tried(&mut self, variable: &'static str, rule: impl Into<String>, result: impl Into<String>) {
        self.tried.push(Tried { variable, rule: rule.into(), result: result.into() });
    }

    /// Notes the steps that have narrowed down the ports.
    pub fn steps(&mut self, steps: Vec<NarrowingStep>) {
        for step in steps {
            let skips = |names: &[String]| format!("skips {}", condensed(names));
            let (rule, result) = match step {
                NarrowingStep::Unclaimed(names) => {
                    ("only the HCAs that the Pod's resource claims hold".to_owned(), skips(&names))
                }
                NarrowingStep::NotGiven(names) => (
                    "only the HCAs that the Pod was given (PCIDEVICE_*, SRIOVNETWORK_VF_DEVICE_*)".to_owned(),
                    skips(&names),
                ),
                NarrowingStep::FarLeftOut(names) => (
                    "only the HCAs that are near a GPU (PIX or PXB), as every GPU has one".to_owned(),
                    skips(&names),
                ),
                NarrowingStep::OtherSubnets { left_out, rails } => (
                    format!("only the HCAs of the InfiniBand subnet {rails}, which has enough for the GPUs"),
                    skips(&left_out),
                ),
                NarrowingStep::Slower { left_out, rails } => (
                    format!("only the HCAs of {rails}, of which there are enough for the GPUs"),
                    skips(&left_out),
                ),
                NarrowingStep::DefaultRoute { left_out, kept } => {
                    let named = [("skips", left_out), ("keeps", kept)].into_iter();
                    let named: Vec<String> = named
                        .filter(|(_, names)| !names.is_empty())
                        .map(|(what, names)| format!("{what} {}", condensed(&names)))
                        .collect();
                    let rule = "without the HCAs that carry a default route, unless they are rails";
                    (rule.to_owned(), named.join(", "))
                }
                NarrowingStep::Kept(rails) => {
                    self.report(hcas::rails_on_default_routes(&rails));
                    continue;
                }
            };
            self.tried(LIST, rule, result);
        }
    }
}
