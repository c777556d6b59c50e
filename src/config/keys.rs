//! The keys. Each is declared here once; its flag is in [`crate::cli`], with the help text.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use figment::value::{Dict, Value};
use indexmap::IndexMap;

use super::{Demand, Excluded, Flag, Rounds, WatchOption, values};
use crate::exit;
use crate::init::{DEFAULT_PREPARE_TIMEOUT, Remap, Rewrite};
use crate::libraries::Wanted;
use crate::log;
use crate::plan::{DefaultRouteOption, EnvPluginOption, ProfileOption};
use crate::state::{Propagate, StateDir};

/// The properties of a key.
pub(super) struct Key {
    /// The name as written in the file.
    pub name: &'static str,
    /// Puts a value into the configuration. An error says what was expected.
    pub put: fn(&mut Config, &Value) -> Result<(), String>,
    /// Whether a flag for it makes rdma-init decide again, because the earlier decision was made without it.
    pub asks_anew: bool,
    /// Whether the decision for a host depends on it, so that a facts document contains it.
    pub decides: bool,
    /// Gives a configuration the value that another one has.
    pub copy: fn(&mut Config, &Config),
    /// Whether messages must not show its value.
    pub may_hold_secrets: bool,
    /// Whether an empty variable counts as a value. For every other key it is ignored, because templates
    /// leave variables empty.
    pub empty_counts: bool,
}

/// A key without special properties.
const PLAIN: Key = Key {
    name: "",
    put: |_, _| Ok(()),
    copy: |_, _| {},
    asks_anew: false,
    decides: false,
    may_hold_secrets: false,
    empty_counts: false,
};

/// Generates [`Config`], its defaults and [`KEYS`] from one list. An entry is
/// `"name" [properties] => field: type = default, reader;`, and the properties are the fields of [`Key`] that
/// are true.
macro_rules! keys {
    ($(
        $(#[$doc:meta])*
        $name:literal $([$($peculiarity:ident),+])? => $field:ident: $type:ty = $default:expr, $reader:expr;
    )*) => {
        /// The whole configuration.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $($(#[$doc])* pub $field: $type,)*
            /// Where the profile was requested, for error messages: `the variable RDMA_INIT_PROFILE`.
            pub profile_source: String,
            /// Whether a flag says what to decide, so that rdma-init decides again.
            pub asks_anew: bool,
            /// The values, as they were given, of the keys on which the decision depends.
            pub given: Dict,
            pub flags: Vec<Flag>,
        }

        impl Default for Config {
            fn default() -> Config {
                Config {
                    $($field: $default,)*
                    profile_source: String::new(),
                    asks_anew: false,
                    given: Dict::new(),
                    flags: Vec::new(),
                }
            }
        }

        /// All keys, in the order in which they are read.
        pub(crate) const KEYS: &[Key] = &[$(Key {
            name: $name,
            put: |config, value| {
                config.$field = $reader(value)?;
                Ok(())
            },
            copy: |config, from| config.$field = from.$field.clone(),
            $($($peculiarity: true,)+)?
            ..PLAIN
        }),*];
    };
}

const DEMANDS: &[&str] = &["off", "warn", "enforce"];

keys! {
    "profile" [asks_anew, decides] => profile: ProfileOption = ProfileOption::Auto, values::profile;

    /// A directory with the user's own profiles.
    "profile-dir" [asks_anew, decides] => profile_dir: Option<PathBuf> = None, values::optional(values::path);

    /// Whether to use the HCA of the default route.
    "default-route-hca" [decides] => default_route_hca: DefaultRouteOption = DefaultRouteOption::Auto,
        values::word(&["auto", "use", "skip"]);

    /// The machine's type, such as `ecs.ebmgn8v.48xlarge`, if nothing in the container shows it.
    "instance-type" [decides] => instance_type: Option<String> = None, values::optional(values::words);

    "memlock" [decides] => memlock: Demand = Demand::Warn, values::word(DEMANDS);

    /// Whether to run a self-test before the command starts.
    "self-test" => self_test: Demand = Demand::Off, values::word(DEMANDS);

    /// Whether all nodes of the job test the fabric between them before the command starts.
    "preflight" => preflight: Demand = Demand::Off, values::word(DEMANDS);

    /// How long to wait for all nodes of the job.
    "preflight-wait" => preflight_wait: Duration = Duration::from_secs(600), values::duration;

    // The user sets these if the launcher does not.
    "preflight-nodes" => preflight_nodes: Option<u32> = None, values::optional(values::number);
    "preflight-node" => preflight_node: Option<u32> = None, values::optional(values::number);
    "preflight-meet" => preflight_meet: Option<String> = None, values::optional(values::words);

    /// Which pairs of nodes to test.
    "preflight-rounds" => preflight_rounds: Rounds = Rounds::Log, values::word(&["log", "full"]);

    /// How long a port's test may take.
    "preflight-each" => preflight_each: Duration = Duration::from_secs(5), values::duration;

    /// In Gbit/s: a rail is slow if it moves less.
    "preflight-min-bandwidth" => preflight_min_bandwidth: Option<f64> = None,
        values::optional(values::amount);

    /// Whether to refuse to start if a rail is slow.
    "preflight-enforce-slow" => preflight_enforce_slow: bool = false, values::boolean;

    /// Whether all nodes move data at the same time after the pairs.
    "preflight-bisection" => preflight_bisection: bool = true, values::boolean;

    /// The file to which node 0 writes the names of the faulty nodes.
    "preflight-exclude-file" => preflight_exclude_file: Option<PathBuf> = None,
        values::optional(values::path);

    /// The format of that file.
    "preflight-exclude-format" => preflight_exclude_format: Excluded = Excluded::Lines,
        values::word(&["lines", "slurm"]);

    /// The files to which node 0 writes the HTML page and the JSON document.
    "preflight-html" => preflight_html: Option<PathBuf> = None, values::optional(values::path);
    "preflight-json-file" => preflight_json_file: Option<PathBuf> = None, values::optional(values::path);

    /// Whether to refuse to start the command if no fabric is found.
    "require-rdma" [decides] => require_rdma: bool = false, values::boolean;

    /// The variables that rdma-init must not fill in.
    "keep" [asks_anew, decides, may_hold_secrets] => keep: BTreeSet<String> = BTreeSet::new(), values::names;

    /// The variables to treat as set by the user.
    "set" [asks_anew, decides, may_hold_secrets] => set: IndexMap<String, String> = IndexMap::new(),
        values::assignments;

    /// The libraries other than NCCL to decide for.
    "libraries" [asks_anew, decides] => libraries: Wanted = Wanted::Found, values::libraries;

    /// Where to save the state; empty for nowhere.
    "state-dir" [empty_counts] => state_dir: StateDir = StateDir::Default, values::place;

    /// Whether to put the variables into `/etc/nccl.conf` as well; `None` means only in a container.
    "write-nccl-conf" => write_nccl_conf: Option<bool> = None, values::optional(values::boolean);

    /// Whether NCCL loads rdma-init's env plugin in each process.
    "nccl-env-plugin" [decides] => nccl_env_plugin: EnvPluginOption = EnvPluginOption::Auto,
        values::word(&["auto", "off"]);

    /// The other places where processes that enter the container find the variables.
    "propagate" => propagate: Propagate = Propagate::default(), values::propagate;

    /// How long the preparation may take, without the time for a self-test.
    "prepare-timeout" => prepare_timeout: Duration = DEFAULT_PREPARE_TIMEOUT, values::duration;

    /// How long to wait until the name in `MASTER_ADDR` resolves; `None` means not to wait.
    "wait-for-master" => wait_for_master: Option<Duration> = None, values::optional(values::duration);

    /// From 1 to 255.
    "refuse-exit-code" => refuse_exit_code: i32 = exit::REFUSED, values::exit_code;

    "log-format" => log_format: log::Format = log::Format::Text, values::word(&["text", "json"]);

    "log-level" => log_level: log::Level = log::Level::Info,
        values::word(&["error", "warn", "info", "debug"]);

    /// Whether to supervise the command even if this is not PID 1.
    "supervise" => supervise: bool = false, values::boolean;

    // `Supervision`, into which these are converted, documents their meaning.
    "kill-group" => kill_group: bool = false, values::boolean;
    "stop-timeout" => stop_timeout: Option<Duration> = None, values::optional(values::duration);
    "drain-timeout" => drain_timeout: Option<Duration> = None, values::optional(values::duration);
    "rewrite-signal" => rewrite_signal: Rewrite = Rewrite::default(), values::rewrite;
    "remap-exit" => remap_exit: Remap = Remap::default(), values::remap;
    "parent-death-signal" => parent_death_signal: Option<i32> = None, values::optional(values::signal);
    "warn-on-reap" => warn_on_reap: bool = false, values::boolean;

    /// Whether a watcher looks at the ports while the job runs. Without a word of the user, it does if an init stays.
    "watch" => watch: Option<WatchOption> = None, values::optional(values::word(&["off", "warn"]));

    /// How often the watcher checks the ports.
    "watch-interval" => watch_interval: Duration = Duration::from_secs(10), values::interval;

    /// How long there must be no traffic before the watcher reports it.
    "watch-after" => watch_after: Duration = Duration::from_secs(600), values::duration;

    /// Whether the watchers of a job's nodes speak with each other, after a preflight.
    "watch-job" => watch_job: bool = true, values::boolean;

    /// The file that the watcher keeps for node_exporter's textfile collector.
    "watch-metrics" => watch_metrics: Option<PathBuf> = None, values::optional(values::metrics_file);

    /// The exit code in place of the command's, if that fails after the fabric broke.
    "fabric-exit-code" => fabric_exit_code: Option<i32> = None, values::optional(values::free_exit_code);

    /// The command that the watcher starts for each warning and each error, with its arguments.
    "on-finding" [may_hold_secrets] => on_finding: Vec<String> = Vec::new(), values::command;
}

/// Returns the key with this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Returns whether there is a key with this name.
pub(crate) fn is_key(name: &str) -> bool {
    find(name).is_some()
}

/// Returns the names of all keys, sorted.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
    names.sort_unstable();
    names
}
