//! The layers of the configuration, lowest first, and the source of each value.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::keys::{self, Key};
use super::{ConfigError, Flag, not_toml, values};
use crate::facts::environment::Environment;
use crate::nearest::nearest;
use crate::sys::exec::KEPT_VARIABLE;
use crate::text::{counted, shortened, visible};

/// The file to read if no other is named.
const DEFAULT_FILE: &str = "/etc/rdma-init.toml";

/// The variable that names another file.
pub const CONFIG_VARIABLE: &str = "RDMA_INIT_CONFIG";

/// The variable that names another termination log. It is not a key of the configuration.
pub const TERMINATION_LOG_VARIABLE: &str = "RDMA_INIT_TERMINATION_LOG";

/// The variable with the token of two nodes that test the fabric between them. It is not a key, because it is
/// a secret.
pub use crate::sys::exec::TOKEN_VARIABLE;

const PREFIX: &str = "RDMA_INIT_";

/// In bytes: more than any configuration needs. A number takes two bytes in the text and a hundred in memory.
const LONGEST: u64 = 256 * 1024;

/// One source of values, with its name in error messages.
struct ConfigLayer {
    name: String,
    values: Dict,
}

impl Provider for ConfigLayer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// Merges all layers; returns `None` if there is no layer, so that every key has its default. Ignores
/// variables that name no key: [`unknown_variables`] handles them.
pub(super) fn merge(environment: &Environment, flags: Vec<Flag>) -> Result<Option<Figment>, ConfigError> {
    let file = file(environment)?;
    // Bytes that are not UTF-8 were replaced, so the value is not the one that the user wrote.
    if let Some((name, _)) = known(environment).find(|(_, value)| value.contains(char::REPLACEMENT_CHARACTER))
    {
        return Err(ConfigError(format!("the variable {name} is not UTF-8 text")));
    }
    let layers = file.into_iter().chain(variables(environment)).chain(flags.into_iter().map(flag));
    Ok(layers.fold(None, |merged: Option<Figment>, layer| Some(merged.unwrap_or_default().merge(layer))))
}

/// Merges the configuration in a facts document with the flags.
pub(super) fn of_document(values: Dict, flags: Vec<Flag>) -> Figment {
    let document = ConfigLayer { name: "the facts document".to_owned(), values };
    flags.into_iter().map(flag).fold(Figment::new().merge(document), Figment::merge)
}

fn file(environment: &Environment) -> Result<Option<ConfigLayer>, ConfigError> {
    let asked_for = environment.get(CONFIG_VARIABLE).filter(|path| !path.is_empty());
    let path = asked_for.unwrap_or(DEFAULT_FILE);
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if asked_for.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => {
            let why = asked_for.map(|_| format!(" ({CONFIG_VARIABLE})")).unwrap_or_default();
            return Err(ConfigError(format!("cannot read the file {path}{why}: {error}")));
        }
    };
    let values = toml::from_str(&text).map_err(|error: toml::de::Error| {
        ConfigError(format!("the file {path} is not valid TOML: {}", not_toml::explain(&text, &error)))
    })?;
    Ok(Some(ConfigLayer { name: format!("the file {path}"), values }))
}

/// Reads a regular file; a FIFO must not hang the program.
fn read(path: &str) -> std::io::Result<String> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    let file: File = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => return Err(missing),
        // If there is no free descriptor, the kernel does not even look for the file.
        Err(error) => {
            return match std::fs::metadata(path) {
                Ok(metadata) if metadata.file_type().is_char_device() => Ok(String::new()),
                Ok(_) => Err(error),
                Err(missing) => Err(missing),
            };
        }
    };
    let metadata = file.metadata()?;
    // The character device is /dev/null, which means no configuration.
    let is_readable = metadata.is_file() || metadata.file_type().is_char_device();
    if !is_readable || metadata.len() > LONGEST {
        return Err(std::io::Error::other(format!("it is not a regular file of at most {LONGEST} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is not UTF-8 text"))
}

fn ours(environment: &Environment) -> impl Iterator<Item = (&str, &str)> {
    environment.iter().filter(|(name, value)| {
        name.starts_with(PREFIX)
            // If two entries have the same name, the first one counts, as for getenv(3).
            && environment.get(name) == Some(value)
            && ![CONFIG_VARIABLE, TERMINATION_LOG_VARIABLE, TOKEN_VARIABLE, KEPT_VARIABLE].contains(name)
            && !is_unset(name, value)
            && !is_service_link(name, value)
    })
}

/// Returns the variables that set a key.
fn known(environment: &Environment) -> impl Iterator<Item = (&str, &str)> {
    ours(environment).filter(|(name, _)| keys::find(&key(name)).is_some())
}

/// The most unknown variables to name individually.
const MOST_NAMED: usize = 8;

/// Returns a warning for each `RDMA_INIT_*` variable that sets nothing. Such a variable is not an error:
/// images and shared ConfigMaps have names such as `RDMA_INIT_VERSION`, or a newer version's key. No warning
/// shows a value, because a mistyped `RDMA_INIT_TOKEN` contains a secret.
pub fn unknown_variables(environment: &Environment) -> Vec<String> {
    let mut unknown = ours(environment).map(|(name, _)| name).filter(|name| keys::find(&key(name)).is_none());
    let mut warnings: Vec<String> = unknown.by_ref().take(MOST_NAMED).map(ignored).collect();
    let more = unknown.count();
    if more > 0 {
        let variables = counted(more, "other variable");
        warnings.push(format!("{variables} of rdma-init ({PREFIX}...) are not known and are ignored."));
    }
    warnings
}

fn ignored(name: &str) -> String {
    let all = keys::names().into_iter().map(variable);
    let others = [CONFIG_VARIABLE, TERMINATION_LOG_VARIABLE, TOKEN_VARIABLE].map(str::to_owned);
    let most = most_slips(name.len().saturating_sub(PREFIX.len()));
    let meant = nearest(all.chain(others), name, most);
    let advice = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_else(|| ".".to_owned());
    format!("the variable {} is not known and is ignored{advice}", shortened(&visible(name)))
}

/// Returns how many slips a name of this many letters may have: any short word is close to any other short word.
fn most_slips(letters: usize) -> usize {
    3.min(letters / 2)
}

/// Says why there is no token here and how to fix it, without a final period, if an rdma-init kept it from the command that it
/// started; returns `None` otherwise.
pub fn kept_token(environment: &Environment) -> Option<&'static str> {
    let has_token = environment.get(TOKEN_VARIABLE).is_some_and(|token| !token.is_empty());
    (!has_token && environment.get(KEPT_VARIABLE).is_some()).then_some(
        "RDMA_INIT_TOKEN is not set here: the rdma-init that started the command passes it only to rdma-init itself, but a shell, a script or another program is in between. Run rdma-init without one in between, as in `docker run IMAGE /rdma-init preflight`, or set RDMA_INIT_TOKEN again in the script",
    )
}

/// Returns the keys that variables set, with their values.
pub(super) fn of_variables(environment: &Environment) -> impl Iterator<Item = (&'static Key, &str)> {
    known(environment).filter_map(|(name, value)| Some((keys::find(&key(name))?, value)))
}

/// Returns a key's variable: `RDMA_INIT_LOG_FORMAT` for `log-format`.
fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('-', "_"))
}

/// Returns a variable's key: `log-format` for `RDMA_INIT_LOG_FORMAT`. The name must have rdma-init's prefix.
fn key(variable: &str) -> String {
    variable[PREFIX.len()..].to_lowercase().replace('_', "-")
}

/// Returns whether a variable counts as unset although it is set, because it is empty: templates leave
/// variables empty. An empty `state-dir` counts, and means nowhere.
fn is_unset(name: &str, value: &str) -> bool {
    value.is_empty() && keys::find(&key(name)).is_some_and(|key| !key.empty_counts)
}

/// Returns a layer for each variable, so that an error can name it.
fn variables(environment: &Environment) -> impl Iterator<Item = ConfigLayer> {
    known(environment).map(|(name, value)| {
        let key = key(name);
        // A text that is not a table stays unchanged, and the check refuses it.
        let table = (key == "set").then(|| values::table(value.lines())).flatten();
        let value = table.unwrap_or_else(|| value.into());
        layer(format!("the variable {name}"), key, value)
    })
}

/// Returns whether Kubernetes set this variable, as it does in every Pod of a namespace with a Service named
/// `rdma-init` or `rdma-init-ANYTHING` (its `pkg/kubelet/envvars`): such as
/// `RDMA_INIT_TEST_SERVICE_PORT_HTTP`, `RDMA_INIT_TEST_PORT_80_TCP_ADDR`, and
/// `RDMA_INIT_TEST_PORT=tcp://10.0.0.1:80`.
fn is_service_link(name: &str, value: &str) -> bool {
    if keys::find(&key(name)).is_some() {
        return false;
    }
    // The rest includes the underscore, because the Service's name may be just `rdma-init`.
    let rest = &name[PREFIX.len() - 1..];
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    rest.ends_with("_SERVICE_HOST")
        || rest.ends_with("_SERVICE_PORT")
        || rest.contains("_SERVICE_PORT_")
        || rest.ends_with("_PORT") && is_address
        || rest.rsplit_once("_PORT_").is_some_and(|(_, port)| is_port(port))
}

/// Returns whether the text has a form such as `80_TCP`, `80_TCP_PROTO`, `80_TCP_PORT` or `80_TCP_ADDR`.
fn is_port(text: &str) -> bool {
    let mut words = text.split('_');
    words.next().is_some_and(|number| number.parse::<u16>().is_ok())
        && words.next().is_some_and(|protocol| ["TCP", "UDP", "SCTP"].contains(&protocol))
        && words.next().is_none_or(|what| ["PROTO", "PORT", "ADDR"].contains(&what))
        && words.next().is_none()
}

fn flag(Flag { key, option, value }: Flag) -> ConfigLayer {
    layer(format!("the flag --{option}"), key, value)
}

fn layer(name: String, key: String, value: Value) -> ConfigLayer {
    ConfigLayer { name, values: Map::from([(key, value)]) }
}

/// Returns the merged values. All layers are in figment's default profile.
///
/// # Errors
/// Fails if there is an unknown key.
pub(super) fn values(figment: &Figment) -> Result<Dict, ConfigError> {
    let mut all = figment.data().map_err(|error| ConfigError(error.to_string()))?;
    let values = all.remove(&Profile::Default).unwrap_or_default();
    let Some(key) = values.keys().find(|key| !keys::is_key(key)) else { return Ok(values) };
    let names = keys::names();
    let advice = match nearest(names.iter().copied(), key, most_slips(key.len())) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("the keys are {}", names.join(", ")),
    };
    // The message does not show the value, because it may be a secret.
    Err(ConfigError(format!("unknown key {key} in {}; {advice}", source(figment, key))))
}

/// Returns the name of the layer that a key's value comes from.
pub(super) fn source(figment: &Figment, key: &str) -> String {
    // A table is merged from several layers, and each of its values has its own source. The source of the
    // invalid value counts.
    let of_table = || {
        let value = figment.find_value(key).ok()?;
        let (_, bad) =
            value.as_dict()?.iter().find(|(name, value)| values::assigned(name, value).is_err())?;
        figment.get_metadata(bad.tag())
    };
    let metadata = of_table().or_else(|| figment.find_metadata(key));
    metadata.map_or_else(|| "the configuration".to_owned(), |metadata| metadata.name.to_string())
}
