//! The command line.

pub mod usage;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use figment::value::Value;
use serde::Serialize;

use crate::config::{self, Flag};
use crate::report::environment::EnvFormat;
use crate::self_test::kinds::Level;
use crate::verbs::port_test::{DEFAULT_SIZE, LEAST_SIZE};
use crate::wire::Address;

/// Starts a GPU training container: fills in the NCCL variables that the user
/// did not set, makes sure that memory can be pinned, then runs COMMAND.
#[derive(Debug, Parser)]
#[command(
    name = "rdma-init",
    version,
    override_usage = "rdma-init [OPTIONS] -- COMMAND [ARG]...\n       rdma-init [OPTIONS] <inspect|plan|env|profiles|self-test|preflight|compare|status|stat|install>\n       rdma-init [OPTIONS] exec -- COMMAND [ARG]...",
    disable_help_subcommand = true,
    after_help = AFTER_HELP
)]
pub struct Cli {
    #[command(flatten)]
    pub options: ConfigFlags,

    #[command(subcommand)]
    pub action: Option<Action>,

    /// The command to run, with its arguments
    #[arg(last = true, value_name = "COMMAND", help_heading = "Arguments")]
    pub command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Every option is also a key of /etc/rdma-init.toml (or of the file that
RDMA_INIT_CONFIG names) and a variable: --require-rdma, require-rdma = true,
RDMA_INIT_REQUIRE_RDMA=true. A flag wins over a variable, a variable over the file.

Exit codes: the command's own; 128+n when signal n killed it; 126 when it is not
executable; 127 when it is not found; 125 when rdma-init itself failed; 121 when
rdma-init refused to start the command.";

/// The flags that are keys of the configuration, each a field of the key's name.
#[derive(Debug, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Configuration")]
pub struct ConfigFlags {
    /// The profile to fill in from: auto, none, or a name that `rdma-init profiles` lists [default: auto]
    #[arg(long, global = true, value_name = "NAME")]
    profile: Option<String>,

    /// A folder with profiles of your own
    #[arg(long, global = true, value_name = "FOLDER")]
    profile_dir: Option<String>,

    /// Whether to use the HCA whose interface carries the default route: auto (where it is a rail), use, or skip [default: auto]
    #[arg(long, global = true, value_name = "WHEN")]
    default_route_hca: Option<String>,

    /// Raise the limit of pinned memory: off, warn, or enforce (refuse to start where it stays at 8 MiB or less) [default: warn]
    #[arg(long, global = true, value_name = "MODE")]
    memlock: Option<String>,

    /// Test limits, image and fabric before the command starts: off, warn, or enforce (refuse to start where a check fails) [default: off]
    #[arg(long, global = true, value_name = "MODE")]
    self_test: Option<String>,

    /// Test the fabric between all nodes of the job before the command starts: off, warn, or enforce (refuse to start where a node, a rail or a link is at fault) [default: off]
    #[arg(long, global = true, value_name = "MODE")]
    preflight: Option<String>,

    /// How long to wait for all nodes of the job [default: 10m]
    #[arg(long, global = true, value_name = "TIME")]
    preflight_wait: Option<String>,

    /// How many nodes the job has, where the launcher does not say it
    #[arg(long, global = true, value_name = "NODES")]
    preflight_nodes: Option<String>,

    /// The index of this node, counted from 0, where the launcher does not say it
    #[arg(long, global = true, value_name = "INDEX")]
    preflight_node: Option<String>,

    /// Where the nodes meet: a name or an address of node 0, where the launcher does not say it
    #[arg(long, global = true, value_name = "HOST[:PORT]")]
    preflight_meet: Option<String>,

    /// A rail between two nodes that moves less is slow
    #[arg(long, global = true, value_name = "GBPS")]
    preflight_min_bandwidth: Option<String>,

    /// Refuse to start also where a rail is slow
    #[arg(long, global = true)]
    preflight_enforce_slow: bool,

    /// Where node 0 leaves the names of the nodes at fault
    #[arg(long, global = true, value_name = "FILE")]
    preflight_exclude_file: Option<String>,

    /// How that file is written: lines, or slurm (one list, as --exclude of Slurm takes it) [default: lines]
    #[arg(long, global = true, value_name = "FORMAT")]
    preflight_exclude_format: Option<String>,

    /// Where node 0 leaves a page for a browser, with every pair as a heat map
    #[arg(long, global = true, value_name = "FILE")]
    preflight_html: Option<String>,

    /// Where node 0 leaves the JSON document, with every pair
    #[arg(long, global = true, value_name = "FILE")]
    preflight_json: Option<String>,

    /// Refuse to start the command where no usable RDMA fabric is found, or NCCL would not use it
    #[arg(long, global = true)]
    require_rdma: bool,

    /// Never fill in this variable (repeatable)
    #[arg(long, global = true, value_name = "VARIABLE")]
    keep: Vec<String>,

    /// Set this variable, as if you had set it in the environment (repeatable)
    #[arg(long, global = true, value_name = "VARIABLE=VALUE")]
    set: Vec<String>,

    /// The libraries beside NCCL to decide for: auto (those that the image holds), nccl for none, or names such as gloo,ucx [default: auto]
    #[arg(long, global = true, value_name = "NAMES", value_delimiter = ',')]
    libraries: Vec<String>,

    /// Where to keep the decision for processes that enter the container later; empty for nowhere [default: /run/rdma-init]
    #[arg(long, global = true, value_name = "FOLDER")]
    state_dir: Option<String>,

    /// Put the variables into /etc/nccl.conf as well: true or false [default: true in a container]
    #[arg(long, global = true, value_name = "BOOLEAN", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    write_nccl_conf: Option<String>,

    /// Put the variables where other programs look as well: profile, ssh, environment (repeatable)
    #[arg(long, global = true, value_name = "WHERE", value_delimiter = ',')]
    propagate: Vec<String>,

    /// Start the command without the rest of the preparation after this time [default: 10s]
    #[arg(long, global = true, value_name = "TIME")]
    prepare_timeout: Option<String>,

    /// Stay and look after the command also where this is not PID 1 (as a subreaper)
    #[arg(long, global = true)]
    supervise: bool,

    /// Forward signals to the command's whole process group
    #[arg(long, global = true)]
    kill_group: bool,

    /// Kill everything that is left this long after the first TERM, INT or QUIT
    #[arg(long, global = true, value_name = "TIME")]
    stop_timeout: Option<String>,

    /// When the command has ended, send TERM to the processes that are left, and kill them after this time
    #[arg(long, global = true, value_name = "TIME")]
    drain_timeout: Option<String>,

    /// Forward the signal TO in place of FROM; a TO of 0 drops FROM (repeatable)
    #[arg(long, global = true, value_name = "FROM:TO")]
    rewrite_signal: Vec<String>,

    /// Exit with code M, or 0 without it, where the command exits with code N (repeatable)
    #[arg(long, global = true, value_name = "N[:M]")]
    remap_exit: Vec<String>,

    /// Have the kernel send rdma-init this signal when its own parent ends
    #[arg(long, global = true, value_name = "SIGNAL")]
    parent_death_signal: Option<String>,

    /// Say when an orphaned process is reaped
    #[arg(long, global = true)]
    warn_on_reap: bool,

    /// The exit code where rdma-init refuses to start the command [default: 121]
    #[arg(long, global = true, value_name = "CODE")]
    refuse_exit_code: Option<String>,

    /// The format of the report on standard error: text or json [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,

    /// How much to report: error, warn, info or debug [default: info]
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Show the RDMA devices, interfaces, limits and libraries of the container
    Inspect {
        #[command(flatten)]
        host: Host,
        /// Print the facts document that --facts reads
        #[arg(long)]
        json: bool,
    },
    /// Show what would be set, and why, as the report at start-up does
    Plan {
        #[command(flatten)]
        host: Host,
        /// Show the evidence for each value as well, and which HCA is near which GPU
        #[arg(long)]
        evidence: bool,
        /// Show the whole chain for one variable: where it is set, what was tried, what NCCL does
        #[arg(long, value_name = "VARIABLE", conflicts_with = "evidence")]
        why: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print the variables that would be set
    Env(EnvArguments),
    /// Run COMMAND with the variables that the container was started with, for kubectl exec
    Exec {
        /// The command to run, with its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Tell whether the container is prepared and its command runs, for probes
    Status {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show the traffic of the RDMA devices, in MiB and packets per second
    Stat(StatArguments),
    /// Test limits, image and RDMA devices, and the fabric to another node
    SelfTest(SelfTestArguments),
    /// Test the fabric between all nodes of a job; started once on each node
    Preflight(PreflightArguments),
    /// List the profiles, or show one
    Profiles {
        /// The profile to show, as TOML
        name: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Compare the reports of many nodes, and name the odd ones out
    Compare {
        /// Files or folders with what `self-test --json` wrote on each node; - for standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Exit with 1 where fewer than NODES nodes have left a report
        #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..))]
        expect: Option<u32>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Copy this program into a folder: an init container does so for an image that cannot be rebuilt
    Install {
        /// An existing folder, such as a volume that both containers mount
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Opens every RDMA device through the built-in libibverbs (for tests of the build)
    #[command(hide = true)]
    VerbsProbe,
}

#[derive(Debug, Args)]
pub struct EnvArguments {
    #[command(flatten)]
    pub host: Host,
    /// The format of the output
    #[arg(long, value_enum, default_value_t)]
    pub format: EnvFormat,
    /// Leave out variables that have this value in the environment already
    #[arg(long)]
    pub changed_only: bool,
    /// Add the variables of NCCL and its companions that were set already
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct StatArguments {
    /// Print the rates again and again, each time over TIME [default without a TIME: 1s]
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s")]
    pub watch: Option<humantime::Duration>,
    /// Print one JSON object on each line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SelfTestArguments {
    #[command(flatten)]
    pub host: Host,
    /// List all checks
    #[arg(long)]
    pub list: bool,
    /// How far to test [default: verbs; with --facts: quick]
    #[arg(long, value_name = "LEVEL")]
    pub level: Option<Level>,
    /// How many bytes of memory to register with each device
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_SIZE, value_parser = clap::value_parser!(u64).range(LEAST_SIZE..))]
    pub size: u64,
    /// How long the test of a port may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = some_time)]
    pub each: humantime::Duration,
    /// Wait for another node that runs self-test --peer, and test the fabric between the two as well
    #[arg(
        long,
        value_name = "ADDR:PORT",
        num_args = 0..=1,
        default_missing_value = ":18516",
        conflicts_with_all = ["peer", "level", "facts"]
    )]
    pub listen: Option<Address>,
    /// Test the fabric to another node, which runs self-test --listen (both need the same secret in RDMA_INIT_TOKEN, 16 bytes or more)
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["level", "facts"])]
    pub peer: Option<Address>,
    /// Without RDMA_INIT_TOKEN: take whoever comes or answers for the other node, in a network of these two alone
    #[arg(long, conflicts_with = "facts")]
    pub any_peer: bool,
    /// How long to wait for the other node
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub wait: humantime::Duration,
    /// Leave out this check (repeatable)
    #[arg(long, value_name = "ID")]
    pub skip: Vec<String>,
    /// Make only this check (repeatable)
    #[arg(long, value_name = "ID")]
    pub only: Vec<String>,
    /// Print one JSON document on one line, as compare reads it
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PreflightArguments {
    /// How many nodes the job has
    #[arg(long, value_name = "NODES", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: Option<u32>,
    /// The index of this node, counted from 0
    #[arg(long, value_name = "INDEX")]
    pub node: Option<u32>,
    /// Where node 0 is
    #[arg(long, value_name = "HOST[:PORT]")]
    pub meet: Option<String>,
    /// Which pairs of nodes to test
    #[arg(long, value_enum, default_value_t)]
    pub rounds: RoundsOption,
    /// How long the test of a port may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = some_time)]
    pub each: humantime::Duration,
    /// A rail between two nodes that moves less is slow
    #[arg(long, value_name = "GBPS", value_parser = gbps)]
    pub min_bandwidth: Option<f32>,
    /// Fail also where a rail is slow
    #[arg(long)]
    pub enforce_slow: bool,
    /// Where node 0 leaves the names of the nodes at fault
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Option<PathBuf>,
    /// How that file is written [default: lines]
    #[arg(long, value_enum)]
    pub format: Option<ExcludeFormat>,
    /// Where node 0 leaves a page for a browser, with every pair as a heat map
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document, at node 0
    #[arg(long)]
    pub json: bool,
}

/// How the names of the nodes at fault are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExcludeFormat {
    /// One name on each line
    Lines,
    /// One list, as --exclude of Slurm takes it
    Slurm,
}

/// Which pairs of nodes are tested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum RoundsOption {
    /// Neighbours, then partners at a distance of 2, 4, 8 and so on
    #[default]
    Log,
    /// Each node with each other
    Full,
}

/// The host that it is about.
#[derive(Debug, Args)]
pub struct Host {
    /// Work on a facts document that `inspect --json` wrote elsewhere, or on demo:NAME, instead of this host
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
}

/// The names of the subcommands that a user may type.
pub const ACTIONS: &[&str] = &[
    "inspect",
    "plan",
    "env",
    "exec",
    "profiles",
    "self-test",
    "preflight",
    "compare",
    "status",
    "stat",
    "install",
];

impl ConfigFlags {
    /// Those that were given, as a layer of the configuration.
    pub fn flags(&self) -> Vec<Flag> {
        // There is a value for every text, list and boolean.
        let mut flags = Value::serialize(self).ok().and_then(Value::into_dict).unwrap_or_default();
        // A table, as a value may hold a line break.
        if let (Some(set), Some(table)) = (flags.get_mut("set"), config::assignments(&self.set)) {
            *set = table;
        }
        flags.into_iter().filter(|(_, value)| is_given(value)).collect()
    }
}

/// Whether the user has written a flag that has this value.
fn is_given(value: &Value) -> bool {
    match value {
        Value::Empty(..) | Value::Bool(_, false) => false,
        Value::Array(_, items) => !items.is_empty(),
        Value::Dict(_, table) => !table.is_empty(),
        _ => true,
    }
}

/// A time in which something can be done.
fn some_time(text: &str) -> Result<humantime::Duration, String> {
    let time: humantime::Duration =
        text.parse().map_err(|error: humantime::DurationError| error.to_string())?;
    if time.is_zero() { Err("expected a time above 0".to_owned()) } else { Ok(time) }
}

fn gbps(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number: &f32| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_key_has_its_flag() {
        let fields = Value::serialize(ConfigFlags::default()).unwrap().into_dict().unwrap();
        assert!(fields.keys().eq(config::names()), "{fields:?}");
        let cli = Cli::command();
        let mut flags: Vec<&str> = cli.get_arguments().filter_map(|argument| argument.get_long()).collect();
        flags.sort_unstable();
        assert_eq!(flags, config::names());
    }

    #[test]
    fn what_is_not_given_is_no_flag() {
        assert!(ConfigFlags::default().flags().is_empty());
        let line = ["rdma-init", "--kill-group", "--state-dir=", "--set=A=b\nc", "--", "true"];
        let flags = Cli::try_parse_from(line).unwrap().options.flags();
        let names: Vec<&str> = flags.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["kill-group", "set", "state-dir"]);
        assert_eq!(flags[1].1.find_ref("A").and_then(Value::as_str), Some("b\nc"));
    }
}
