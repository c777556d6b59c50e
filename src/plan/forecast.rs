//! What NCCL will do with the decision, according to the model of NCCL, given the job's final variables.

use serde::Serialize;

use super::Fabric;
use super::setting::Setting;
use crate::facts::Facts;
use crate::libraries::nccl::predict::{Prediction, Transport, behind_plugin, predict};
use crate::libraries::nccl::version::{KINDS, Version};
use crate::libraries::nccl::{log, network};
use crate::profiles::Script;

/// The prediction for some releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// The job's release, or the first release to which the prediction applies; `None` for all releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Version>,
    #[serde(flatten)]
    pub prediction: Prediction,
    /// The beginning of NCCL's own log line about its HCAs, if the job logs it and all these releases write
    /// the same line.
    #[serde(skip)]
    pub log: Option<String>,
}

/// Returns the prediction for the job's release. If it is unknown, returns one prediction for each change in
/// behavior between releases, oldest first.
pub(super) fn forecasts(
    facts: &Facts,
    (fabric, script): (&Fabric, Option<&Script>),
    settings: &[Setting],
    version: Option<Version>,
) -> Vec<Forecast> {
    let get = |name: &str| value(settings, name);
    // No HCA shows that these interfaces need a plugin. Until the platform's script has run, the loader may not know
    // the plugin's directory.
    let needs_plugin = matches!(fabric, Fabric::PluginOverInterfaces(_))
        && script.is_none_or(|script| get(&script.sets).is_some())
        && get(network::VARIABLE).is_none();
    let of = |version: Version| {
        let mut prediction = predict(facts, get, version);
        if needs_plugin && matches!(prediction.transport, Transport::Sockets { .. }) {
            prediction.transport = behind_plugin(facts, &get, version, prediction.transport);
        }
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

/// Returns the value in the job's environment, conf files included.
pub(super) fn value<'a>(settings: &'a [Setting], variable: &str) -> Option<&'a str> {
    settings.iter().find(|setting| setting.variable == variable)?.value.as_deref()
}
