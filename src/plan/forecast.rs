//! What NCCL will do with the decision: the model of NCCL, asked about the job's
//! variables as they will be.

use serde::Serialize;

use super::setting::Setting;
use crate::facts::Facts;
use crate::libraries::nccl::log;
use crate::libraries::nccl::predict::{Prediction, predict};
use crate::libraries::nccl::version::{KINDS, Version};

/// What is predicted for some releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// The job's, or the first of those for which it holds; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Version>,
    #[serde(flatten)]
    pub prediction: Prediction,
    /// The beginning of NCCL's own line about its HCAs, if the job logs it and all these
    /// releases write the same.
    #[serde(skip)]
    pub log: Option<String>,
}

/// Returns the prediction for the release that is known; else for every kind of release,
/// oldest first, one for each change in what they do.
pub(super) fn forecasts(facts: &Facts, settings: &[Setting], version: Option<Version>) -> Vec<Forecast> {
    let get = |name: &str| value(settings, name);
    let of = |version: Version| {
        let prediction = predict(facts, get, version);
        let log = log::using(facts, &prediction, get, version);
        (prediction, log)
    };
    if let Some(version) = version {
        let (prediction, log) = of(version);
        return vec![Forecast { since: Some(version), prediction, log }];
    }
    let mut forecasts: Vec<Forecast> = Vec::new();
    for kind in KINDS {
        let (prediction, log) = of(*kind);
        match forecasts.last_mut().filter(|last| last.prediction == prediction) {
            Some(last) if last.log == log => {}
            Some(last) => last.log = None,
            None => {
                let since = (!forecasts.is_empty()).then_some(*kind);
                forecasts.push(Forecast { since, prediction, log });
            }
        }
    }
    forecasts
}

/// Returns what the job's environment has, conf files included.
pub(super) fn value<'a>(settings: &'a [Setting], variable: &str) -> Option<&'a str> {
    settings.iter().find(|setting| setting.variable == variable)?.value.as_deref()
}
