//! What the plan reports besides its settings.

use super::remark::Remark;
use super::rule::{Trial, Tried};
use crate::fabric::NarrowingStep;
use crate::libraries::nccl::devices::LIST;

/// The remarks and trials that the plan collects while it decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    pub remarks: Vec<Remark>,
    pub tried: Vec<Tried>,
}

impl Notes {
    pub fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark);
    }

    pub fn tried(&mut self, variable: &'static str, trial: Trial) {
        self.tried.push(Tried { variable, trial });
    }

    /// Notes the steps that have narrowed down the ports.
    pub fn steps(&mut self, steps: Vec<NarrowingStep>) {
        for step in steps {
            match step {
                NarrowingStep::Unclaimed(names) => self.tried(LIST, Trial::Claims(names)),
                NarrowingStep::NotGiven(names) => self.tried(LIST, Trial::Given(names)),
                NarrowingStep::FarLeftOut(names) => self.tried(LIST, Trial::NearHcas(names)),
                NarrowingStep::OtherSubnets { left_out, rails } => {
                    self.tried(LIST, Trial::OneSubnet { rails, left_out });
                }
                NarrowingStep::Slower { left_out, rails } => {
                    self.tried(LIST, Trial::OneRate { rails, left_out });
                }
                NarrowingStep::DefaultRoute { left_out, kept } => {
                    self.tried(LIST, Trial::DefaultRoute { left_out, kept });
                }
                NarrowingStep::Kept(rails) => self.remark(Remark::DefaultRouteRails(rails)),
            }
        }
    }
}
