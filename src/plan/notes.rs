//! What the plan says besides its settings.

use super::remark::Remark;

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

    pub fn tried(&mut self, variable: &'static str, rule: impl Into<String>, result: impl Into<String>) {
        self.tried.push(Tried { variable, rule: rule.into(), result: result.into() });
    }
}
