//! The keys: each is declared here once, and its flag with the help text in [`crate::cli`].

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use figment::value::Value;
use indexmap::IndexMap;

use super::{Demand, Excluded, Rounds, WatchOption, values};
use crate::exit;
use crate::init::{DEFAULT_PREPARE_TIMEOUT, Remap, Rewrite};
use crate::libraries::Wanted;
use crate::log;
use crate::plan::{DefaultRouteOption, EnvPluginOption, ProfileOption};
use crate::state::{Propagate, StateDir};

/// What is to be known of a key.
pub(super) struct Key {
    /// As it is written in the file.
    pub name: &'static str,
    /// Puts a value into the configuration. An error says what was expected.
    pub put: fn(&mut Config, &Value) -> Result<(), String>,
    /// If its flag is given, rdma-init decides again, because an earlier decision was made without it.
    pub asks_anew: bool,
    /// No message shows its value.
    pub may_hold_secrets: bool,
    /// An empty variable is a value. For every other key it is as if it were not there, as
    /// templates leave variables empty.
    pub empty_counts: bool,
}

/// A key without peculiarities.
const PLAIN: Key =
    Key { name: "", put: |_, _| Ok(()), asks_anew: false, may_hold_secrets: false, empty_counts: false };

/// Makes [`Config`], its defaults and [`KEYS`] of one list. An entry is
/// `"name" [peculiarities] => field: type = default, reader;`, and the peculiarities are the
/// fields of [`Key`] that are true.
macro_rules! keys {
    ($(
        $(#[$doc:meta])*
        $name:literal $([$($peculiarity:ident),+])? => $field:ident: $type:ty = $default:expr, $reader:expr;
    )*) => {
        /// The whole configuration.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $($(#[$doc])* pub $field: $type,)*
            /// Where the profile was asked for, for an error to name: `the variable
            /// RDMA_INIT_PROFILE`.
            pub profile_source: String,
            /// Whether a flag says what to decide.
            pub asks_anew: bool,
        }

        impl Default for Config {
            fn default() -> Config {
                Config { $($field: $default,)* profile_source: String::new(), asks_anew: false }
            }
        }

        /// All keys, in the order in which they are read.
        pub(crate) const KEYS: &[Key] = &[$(Key {
            name: $name,
            put: |config, value| {
                config.$field = $reader(value)?;
                Ok(())
            },
            $($($peculiarity: true,)+)?
            ..PLAIN
        }),*];
    };
}

const DEMANDS: &[&str] = &["off", "warn", "enforce"];

keys! {
    "profile" [asks_anew] => profile: ProfileOption = ProfileOption::Auto, values::profile;

    /// A folder with profiles of the user's own.
    "profile-dir" [asks_anew] => profile_dir: Option<PathBuf> = None, values::optional(values::path);

    /// Whether the HCA of the default route is used.
    "default-route-hca" => default_route_hca: DefaultRouteOption = DefaultRouteOption::Auto,
        values::word(&["auto", "use", "skip"]);

    /// The machine's type, such as `ecs.ebmgn8v.48xlarge`, if nothing in the container shows it.
    "instance-type" => instance_type: Option<String> = None, values::optional(values::words);

    "memlock" => memlock: Demand = Demand::Warn, values::word(DEMANDS);

    /// A self-test before the command starts.
    "self-test" => self_test: Demand = Demand::Off, values::word(DEMANDS);

    /// All nodes of the job prove the fabric between them before the command starts.
    "preflight" => preflight: Demand = Demand::Off, values::word(DEMANDS);

    /// How long all nodes of the job are waited for.
    "preflight-wait" => preflight_wait: Duration = Duration::from_secs(600), values::duration;

    // By hand, if the launcher does not say it.
    "preflight-nodes" => preflight_nodes: Option<u32> = None, values::optional(values::number);
    "preflight-node" => preflight_node: Option<u32> = None, values::optional(values::number);
    "preflight-meet" => preflight_meet: Option<String> = None, values::optional(values::words);

    /// Which pairs of nodes are tested.
    "preflight-rounds" => preflight_rounds: Rounds = Rounds::Log, values::word(&["log", "full"]);

    /// How long the test of a port may take.
    "preflight-each" => preflight_each: Duration = Duration::from_secs(5), values::duration;

    /// In Gbit/s: a rail that moves less is slow.
    "preflight-min-bandwidth" => preflight_min_bandwidth: Option<f64> = None,
        values::optional(values::amount);

    /// Refuse to start if a rail is slow.
    "preflight-enforce-slow" => preflight_enforce_slow: bool = false, values::boolean;

    /// Whether all nodes move data at once after the pairs.
    "preflight-bisection" => preflight_bisection: bool = true, values::boolean;

    /// Where node 0 leaves the names of the nodes at fault.
    "preflight-exclude-file" => preflight_exclude_file: Option<PathBuf> = None,
        values::optional(values::path);

    /// How that file is written.
    "preflight-exclude-format" => preflight_exclude_format: Excluded = Excluded::Lines,
        values::word(&["lines", "slurm"]);

    /// Where node 0 leaves the page, and the document.
    "preflight-html" => preflight_html: Option<PathBuf> = None, values::optional(values::path);
    "preflight-json-file" => preflight_json_file: Option<PathBuf> = None, values::optional(values::path);

    /// Refuse to start the command if no fabric is found.
    "require-rdma" => require_rdma: bool = false, values::boolean;

    /// Variables that are never filled in.
    "keep" [asks_anew, may_hold_secrets] => keep: BTreeSet<String> = BTreeSet::new(), values::names;

    /// Variables that count as set by the user.
    "set" [asks_anew, may_hold_secrets] => set: IndexMap<String, String> = IndexMap::new(),
        values::assignments;

    /// The libraries beside NCCL to decide for.
    "libraries" [asks_anew] => libraries: Wanted = Wanted::Found, values::libraries;

    /// Where the state is left; empty for nowhere.
    "state-dir" [empty_counts] => state_dir: StateDir = StateDir::Default, values::place;

    /// Put the variables into `/etc/nccl.conf` as well; `None`: in a container.
    "write-nccl-conf" => write_nccl_conf: Option<bool> = None, values::optional(values::boolean);

    /// Whether NCCL asks our env plugin in each process.
    "nccl-env-plugin" => nccl_env_plugin: EnvPluginOption = EnvPluginOption::Auto,
        values::word(&["auto", "off"]);

    /// Where else processes that enter the container find the variables.
    "propagate" => propagate: Propagate = Propagate::default(), values::propagate;

    /// Without the time of a self-test.
    "prepare-timeout" => prepare_timeout: Duration = DEFAULT_PREPARE_TIMEOUT, values::duration;

    /// How long to wait until the name in `MASTER_ADDR` resolves; `None` and zero: not at all.
    "wait-for-master" => wait_for_master: Option<Duration> = None, values::optional(values::duration);

    /// 1 to 255.
    "refuse-exit-code" => refuse_exit_code: i32 = exit::REFUSED, values::exit_code;

    "log-format" => log_format: log::Format = log::Format::Text, values::word(&["text", "json"]);

    "log-level" => log_level: log::Level = log::Level::Info,
        values::word(&["error", "warn", "info", "debug"]);

    /// Look after the command also if this is not PID 1.
    "supervise" => supervise: bool = false, values::boolean;

    // What these mean is said at `Supervision`, which they become.
    "kill-group" => kill_group: bool = false, values::boolean;
    "stop-timeout" => stop_timeout: Option<Duration> = None, values::optional(values::duration);
    "drain-timeout" => drain_timeout: Option<Duration> = None, values::optional(values::duration);
    "rewrite-signal" => rewrite_signal: Rewrite = Rewrite::default(), values::rewrite;
    "remap-exit" => remap_exit: Remap = Remap::default(), values::remap;
    "parent-death-signal" => parent_death_signal: Option<i32> = None, values::optional(values::signal);
    "warn-on-reap" => warn_on_reap: bool = false, values::boolean;

    /// Whether a watcher looks at the ports while the job runs. Without a word of the user, it does if an init stays.
    "watch" => watch: Option<WatchOption> = None, values::optional(values::word(&["off", "warn"]));

    /// How often the watcher looks at the ports.
    "watch-interval" => watch_interval: Duration = Duration::from_secs(10), values::interval;

    /// After which time without traffic the watcher says so.
    "watch-after" => watch_after: Duration = Duration::from_secs(600), values::duration;

    /// Whether the watchers of a job's nodes speak with each other, after a preflight.
    "watch-job" => watch_job: bool = true, values::boolean;

    /// The file that the watcher keeps for node_exporter's textfile collector.
    "watch-metrics" => watch_metrics: Option<PathBuf> = None, values::optional(values::path);

    /// The exit code in place of the command's, if that fails after the fabric broke.
    "fabric-exit-code" => fabric_exit_code: Option<i32> = None, values::optional(values::free_exit_code);

    /// The command that the watcher starts for each warning and each error, with its arguments.
    "on-finding" [may_hold_secrets] => on_finding: Vec<String> = Vec::new(), values::command;
}

/// The key of this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Whether a key has this name.
pub(crate) fn is_key(name: &str) -> bool {
    find(name).is_some()
}

/// The names of all keys, sorted.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
    names.sort_unstable();
    names
}
