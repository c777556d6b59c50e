//! The configuration: built-in defaults, a file, `RDMA_INIT_*` variables, flags.
//!
//! figment merges the layers and remembers where each value came from, so that an error can name the key, the
//! value, and its file or variable.

mod keys;
mod layers;
mod not_toml;
mod values;

use std::time::Duration;

use figment::Figment;
use figment::value::{Dict, Value};
use indexmap::IndexMap;
use serde::Deserialize;

use crate::facts::environment::Environment;
use crate::facts::launchers::MOST_NODES;
use crate::facts::secret::shown;
use crate::init::{Enforcing, FailureOrders, Orders, Refusal, Supervision, Voice};
use crate::log;
use crate::plan::Options;

use keys::{KEYS, Key};

pub(crate) use keys::is_key;
pub use keys::{Config, names};
pub use layers::{CONFIG_VARIABLE, TERMINATION_LOG_VARIABLE, TOKEN_VARIABLE, kept_token, unknown_variables};

/// How strictly rdma-init treats the memlock limit, the self-test, or the preflight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// Do nothing.
    Off,
    /// Do what is possible, and report what is wrong.
    Warn,
    /// Do the same as `Warn`, and refuse to start the command on failure.
    Enforce,
}

/// Whether a watcher checks the ports while the job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchOption {
    Off,
    Warn,
}

/// The format of the list of faulty nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Excluded {
    /// One name on each line.
    #[default]
    Lines,
    /// One list, in the format of Slurm's `--exclude`.
    Slurm,
}

/// The longest time that the self-test of all ports takes at a start, unless a port takes longer on its own.
pub const SELF_TEST_TIME: Duration = Duration::from_secs(15);

/// The longest time that a preflight takes at a start after all nodes have joined, if it tests the usual
/// pairs and a port's test takes no more than the usual time. It usually takes less than a minute.
pub const PREFLIGHT_TIME: Duration = Duration::from_secs(45 * 60);

/// An unusable configuration, as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// A command-line option that is a key.
#[derive(Debug, Clone, PartialEq)]
pub struct Flag {
    pub key: String,
    /// As the user wrote it, without the dashes: a command may omit the key's prefix.
    pub option: String,
    pub value: Value,
}

impl Flag {
    /// Returns the option with its key's name.
    pub fn of(key: &str, value: Value) -> Flag {
        Flag { key: key.to_owned(), option: key.to_owned(), value }
    }
}

/// Which pairs of nodes the preflight tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounds {
    /// Neighbors, then nodes at a distance of 2, 4, 8 and so on.
    #[default]
    Log,
    /// Each node with every other node.
    Full,
}

/// Returns texts `VARIABLE=VALUE` as one value of the key `set`; `None` if one has another form.
pub fn assignments(texts: &[String]) -> Option<Value> {
    values::table(texts.iter().map(String::as_str))
}

/// The configuration in a facts document: the values of keys.
pub type Captured = serde_json::Map<String, serde_json::Value>;

const SET: &str = "set";
pub(crate) const PROFILE_DIR: &str = "profile-dir";

/// The key whose source is kept.
const PROFILE: &str = "profile";

/// The key whose value must differ from another key's.
const FABRIC_EXIT_CODE: &str = "fabric-exit-code";

/// Merges the layers and checks every value.
///
/// # Errors
/// Fails if the file cannot be read or is not TOML, if the file or a flag has an unknown key, or if a value
/// is invalid.
pub fn load(environment: &Environment, flags: Vec<Flag>) -> Result<Config, ConfigError> {
    let asks_anew = flags.iter().any(|flag| keys::find(&flag.key).is_some_and(|key| key.asks_anew));
    let mut config = Config { asks_anew, flags: flags.clone(), ..Config::default() };
    let Some(figment) = layers::merge(environment, flags)? else { return Ok(config) };
    // All values are read once, because figment copies all of them for each request.
    let values = layers::values(&figment)?;
    put(&mut config, KEYS.iter(), &values, &figment)?;
    config.given =
        values.into_iter().filter(|(name, _)| keys::find(name).is_some_and(|key| key.decides)).collect();
    if config.fabric_exit_code == Some(config.refuse_exit_code) {
        let source = layers::source(&figment, FABRIC_EXIT_CODE);
        return Err(ConfigError(format!(
            "the key {FABRIC_EXIT_CODE} has the value {} in {source}, as refuse-exit-code has: choose two different codes",
            config.refuse_exit_code
        )));
    }
    Ok(config)
}

/// Puts the values of these keys into the configuration.
fn put<'k>(
    config: &mut Config,
    keys: impl Iterator<Item = &'k Key>,
    values: &Dict,
    figment: &Figment,
) -> Result<(), ConfigError> {
    for key in keys {
        let Some(value) = values.get(key.name) else { continue };
        (key.put)(config, value).map_err(|expected| bad(key, value, figment, &expected))?;
        if key.name == PROFILE {
            config.profile_source = layers::source(figment, PROFILE);
        }
    }
    Ok(())
}

fn bad(key: &Key, value: &Value, figment: &Figment, expected: &str) -> ConfigError {
    let (name, source) = (key.name, layers::source(figment, key.name));
    // `expected` says which part is wrong: the whole value may contain secrets.
    if key.may_hold_secrets {
        return ConfigError(format!("the key {name} in {source}: {expected}"));
    }
    let value = values::shown(value);
    ConfigError(format!("the key {name} has the value {value} in {source}: {expected}"))
}

/// Returns the settings from flags and variables, for PID 1, which must not read the configuration file.
/// Treats invalid values as absent: [`load`] reports them.
pub fn early(environment: &Environment, flags: &[Flag]) -> Config {
    let mut config = Config::default();
    for (key, value) in layers::of_variables(environment) {
        let _ = (key.put)(&mut config, &Value::from(value));
    }
    for flag in flags {
        let _ = keys::find(&flag.key).map(|key| (key.put)(&mut config, &flag.value));
    }
    config
}

impl Config {
    /// Returns the values of the keys on which the decision depends, for a facts document. It contains no value that
    /// may be a secret.
    pub fn captured(&self) -> Captured {
        let plain = |(name, value): (&String, &Value)| {
            let value = match name == SET {
                true => serde_json::to_value(
                    self.set
                        .iter()
                        .map(|(name, value)| (name, shown(name, value)))
                        .collect::<IndexMap<_, _>>(),
                ),
                false => serde_json::to_value(value),
            };
            Some((name.clone(), value.ok()?))
        };
        self.given.iter().filter_map(plain).collect()
    }

    /// Returns this configuration with the captured one in place of what this machine's file and variables say about
    /// the decision. Flags stay. The directory of profiles stays as well, because the captured one is on another
    /// machine.
    ///
    /// # Errors
    /// Fails if a captured value is invalid.
    pub fn replaying(&self, captured: &Captured) -> Result<Config, ConfigError> {
        let value = |(name, value): (&String, &serde_json::Value)| {
            Some((name.clone(), Value::serialize(value).ok()?))
        };
        let keys = || KEYS.iter().filter(|key| key.decides && key.name != PROFILE_DIR);
        let is_replayed = |name: &String| keys().any(|key| key.name == name);
        let values = captured.iter().filter(|(name, _)| is_replayed(name)).filter_map(value).collect();
        let figment = layers::of_document(values, self.flags.clone());
        let mut config = self.clone();
        let default = Config::default();
        keys().for_each(|key| (key.copy)(&mut config, &default));
        put(&mut config, keys(), &layers::values(&figment)?, &figment)?;
        Ok(config)
    }

    /// Returns the variables that flags set.
    pub fn set_by_flags(&self) -> impl Iterator<Item = &str> {
        let tables = self.flags.iter().filter(|flag| flag.key == SET).filter_map(|flag| flag.value.as_dict());
        tables.flat_map(|table| table.keys().map(String::as_str))
    }

    /// Returns the orders for PID 1: the limits of the preparation, how to supervise the command, and how to
    /// report.
    pub fn orders(&self) -> Orders {
        let asked_by = Enforcing {
            require_rdma: self.require_rdma,
            memlock: self.memlock == Demand::Enforce,
            self_test: self.self_test == Demand::Enforce,
            preflight: self.preflight == Demand::Enforce,
        };
        let refusal = Refusal { code: self.refuse_exit_code, asked_by };
        Orders {
            terms: FailureOrders {
                deadline: Some(self.longest_preparation()),
                refuse: (asked_by != Enforcing::default()).then_some(refusal),
            },
            supervision: self.supervision(),
            voice: Voice {
                json: self.log_format == log::Format::Json,
                quiet: self.log_level == log::Level::Error,
            },
        }
    }

    /// Returns how to supervise the command.
    pub fn supervision(&self) -> Supervision {
        Supervision {
            kill_group: self.kill_group,
            stop_timeout: self.stop_timeout,
            drain_timeout: self.drain_timeout,
            rewrite: self.rewrite_signal,
            remap: self.remap_exit,
            parent_death_signal: self.parent_death_signal,
            warn_on_reap: self.warn_on_reap,
            watch: self.watch != Some(WatchOption::Off),
            fabric_exit_code: self.fabric_exit_code,
        }
    }

    /// Returns the keys that the user set and that have no effect if no supervisor stays with the command.
    pub fn without_effect_in_place(&self) -> Vec<&'static str> {
        let watcher = [
            ("watch", self.watch == Some(WatchOption::Warn)),
            ("on-finding", !self.on_finding.is_empty() && self.watch != Some(WatchOption::Off)),
            ("watch-metrics", self.watch_metrics.is_some() && self.watch != Some(WatchOption::Off)),
        ];
        let of_watcher = watcher.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key);
        self.supervision().without_effect_in_place().into_iter().chain(of_watcher).collect()
    }

    /// Returns how long the preparation may take. PID 1 starts the command without it after this time.
    pub fn longest_preparation(&self) -> Duration {
        // `prepare-timeout` does not include the time for the self-test, the preflight, and the wait for the
        // master.
        let proof = match self.self_test {
            Demand::Off => Duration::ZERO,
            Demand::Warn | Demand::Enforce => SELF_TEST_TIME,
        };
        let preflight = match self.preflight {
            Demand::Off => Duration::ZERO,
            Demand::Warn | Demand::Enforce => {
                self.longest_preflight().saturating_add(SELF_TEST_TIME).saturating_add(self.preflight_wait)
            }
        };
        let master = self.wait_for_master.unwrap_or_default();
        [proof, preflight, master].into_iter().fold(self.prepare_timeout, Duration::saturating_add)
    }

    /// Returns the longest time of the preflight after all nodes have joined: an upper bound of the
    /// preflight's own limits.
    pub fn longest_preflight(&self) -> Duration {
        const USUAL: Duration = Duration::from_secs(5);
        let factor = (self.preflight_each.as_secs_f64() / USUAL.as_secs_f64()).max(1.0);
        let whole =
            Duration::try_from_secs_f64(PREFLIGHT_TIME.as_secs_f64() * factor).unwrap_or(Duration::MAX);
        let every_pair = match self.preflight_rounds {
            Rounds::Log => Duration::ZERO,
            // There is one round for each other node, each as long as working pairs take.
            Rounds::Full => {
                let nodes = self.preflight_nodes.unwrap_or(MOST_NODES);
                self.preflight_each.saturating_add(USUAL).saturating_mul(nodes)
            }
        };
        whole.saturating_add(every_pair)
    }

    /// Returns the options that the plan needs.
    pub fn plan_options(&self) -> Options {
        Options {
            profile: self.profile.clone(),
            default_route_hca: self.default_route_hca,
            nccl_env_plugin: self.nccl_env_plugin,
            instance_type: self.instance_type.clone(),
            require_rdma: self.require_rdma,
            keep: self.keep.clone(),
            set: self.set.clone(),
            libraries: self.libraries.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
