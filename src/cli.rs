//! The command line.

pub(crate) mod foreseen;
mod messages;
mod options;
mod parsers;
pub(crate) mod print;
pub(crate) mod usage;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, Args, Command, CommandFactory, Parser, Subcommand, value_parser};

use crate::report::environment::EnvFormat;
use crate::report::metrics::Exposition;
use crate::self_test::kinds::Level;
use crate::verbs::port_test::DEFAULT_SIZE;
use crate::wire::Address;

/// Starts a GPU training container: fills in the NCCL variables that the user
/// did not set, makes sure that memory can be pinned, then runs COMMAND.
#[derive(Debug, Parser)]
#[command(
    name = "rdma-init",
    version,
    override_usage = "rdma-init [OPTIONS] -- COMMAND [ARG]...\n       rdma-init SUBCOMMAND [OPTIONS]",
    subcommand_value_name = "SUBCOMMAND",
    subcommand_help_heading = "Subcommands",
    disable_help_subcommand = true,
    after_help = AFTER_HELP
)]
struct Cli {
    #[command(subcommand)]
    action: Option<Action>,

    /// The command to run, with its arguments
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Each option is also a key of /etc/rdma-init.toml (or of the file that
RDMA_INIT_CONFIG names) and a variable: --require-rdma, require-rdma = true,
RDMA_INIT_REQUIRE_RDMA=true. A flag overrides a variable, and a variable
overrides the file. The same holds for each option of `rdma-init help
preflight`, with a prefix: --wait is --preflight-wait before a command.

Exit codes: the command's own; 128+n if signal n killed it; 126 if it is not
executable; 127 if it does not exist; 125 if rdma-init itself failed; 121 if
rdma-init refused to start it.";

/// The width of the help text in columns, on every terminal.
const COLUMNS: usize = 80;

/// Returns the whole command line: each command with its own options and with the start's options that it
/// accepts.
pub fn command() -> Command {
    let cli = options::added(Cli::command().term_width(COLUMNS));
    with_help(cli).mut_subcommands(with_help)
}

/// Returns the command line of a start alone, without the commands, which take most of the time to build. It
/// parses the same starts as [`command`], which supplies the help and the messages.
fn start() -> Command {
    let command = Arg::new("command").last(true).num_args(1..).value_parser(value_parser!(OsString));
    Command::new("rdma-init").disable_help_flag(true).args(options::of_start()).arg(command)
}

/// Makes `-h` and `--help` the same, with one layout for all commands.
fn with_help(command: Command) -> Command {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print this help");
    command.disable_help_flag(true).arg(help)
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Show RDMA devices, interfaces, limits and libraries
    Inspect {
        #[command(flatten)]
        host: Host,
        /// Print the facts document that --facts reads
        #[arg(long)]
        json: bool,
    },
    /// Show which variables would be set, and why
    Plan {
        #[command(flatten)]
        host: Host,
        /// Add the evidence for each value, and which HCA is near which GPU
        #[arg(long)]
        evidence: bool,
        /// Show where this variable is set, what was tried, and what NCCL does with it
        #[arg(long, value_name = "VARIABLE", conflicts_with = "evidence")]
        why: Option<String>,
        /// Show whether each NCCL variable of this process is its own, rdma-init's, or a copy
        #[arg(long = "in", value_name = "PID", value_parser = parsers::process, conflicts_with_all = ["evidence", "why", "facts", "json"])]
        process: Option<u32>,
        /// Print only what is wrong
        #[arg(long, short, conflicts_with_all = ["evidence", "why", "process", "json"])]
        quiet: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print the variables that would be set
    Env(EnvArguments),
    /// Run COMMAND with the container's variables, for kubectl exec
    Exec {
        /// How long to wait for a start that is in progress, or 0 [default: as long as it may take]
        #[arg(long, value_name = "TIME", value_parser = parsers::wait)]
        wait: Option<Duration>,
        /// The command to run, with its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Report whether the container is prepared and running
    Status {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// Ask NCCL's RAS which ranks are missing, dead or behind; if any are, ask again after TIME
        /// [default without TIME: 60s]
        #[arg(
            long,
            value_name = "TIME",
            num_args = 0..=1,
            require_equals = true,
            default_missing_value = "60s",
            value_parser = parsers::wait
        )]
        ras: Option<Duration>,
    },
    /// Show the traffic of the RDMA devices
    Stat(StatArguments),
    /// Test limits, image, RDMA devices, and the fabric to another node
    SelfTest(SelfTestArguments),
    /// Test the fabric between all nodes of a job; run it on each node
    Preflight(PreflightArguments),
    /// List the profiles, or show one
    Profiles {
        /// The profiles to show, as TOML
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// Show whether each profile fits this host, and why
        #[arg(long, conflicts_with = "json")]
        why: bool,
        #[command(flatten)]
        host: Host,
    },
    /// Compare the reports of many nodes, and name those that differ
    Compare {
        /// Files or directories with the output of `self-test --json`; - for standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Exit with 1 if fewer than NODES nodes have a report
        #[arg(long, value_name = "NODES", value_parser = parsers::count)]
        expect: Option<u32>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Copy this program, for use in an image that cannot be rebuilt
    Install {
        /// An existing directory, such as a volume that both containers mount
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Print completions for a shell
    Completions {
        /// The shell: bash, zsh or fish
        #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
        shell: Shell,
    },
    /// Print a man page, for `man -l -`
    Man {
        /// The subcommand, or none for rdma-init itself
        #[arg(value_name = "SUBCOMMAND", value_parser = ACTIONS.to_vec(), hide_possible_values = true)]
        command: Option<String>,
    },
    /// Print the licenses of rdma-init and of what it contains
    Licenses,
    /// Print the help of rdma-init, or of a subcommand
    Help {
        /// The subcommand, or none for rdma-init itself
        #[arg(value_name = "SUBCOMMAND", value_parser = ACTIONS.to_vec(), hide_possible_values = true)]
        command: Option<String>,
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
    /// Omit variables that already have this value
    #[arg(long)]
    pub changed_only: bool,
    /// Include the variables that are already set
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct StatArguments {
    /// Print the rates repeatedly, each time over TIME [default without TIME: 1s]
    // The key `watch` is another thing, so the option has another id.
    #[arg(id = "every", long = "watch", value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = parsers::interval)]
    pub watch: Option<Duration>,
    /// Print one JSON object on each line
    #[arg(long)]
    pub json: bool,
    /// Print all counters as metrics, once
    #[arg(long, value_enum, conflicts_with_all = ["every", "json"])]
    pub format: Option<Exposition>,
}

#[derive(Debug, Args)]
pub struct SelfTestArguments {
    #[command(flatten)]
    pub host: Host,
    /// List all checks
    #[arg(long)]
    pub list: bool,
    /// How deep to test: quick, verbs [default: verbs; with --facts: quick]
    #[arg(long, value_name = "LEVEL", hide_possible_values = true)]
    pub level: Option<Level>,
    /// Bytes of memory to register with each device
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_SIZE, value_parser = parsers::size)]
    pub size: u64,
    /// Time limit for the test of each port
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parsers::time)]
    pub each: Duration,
    /// Wait for a node that runs self-test --peer, and test the fabric to it
    #[arg(
        long,
        value_name = "ADDR:PORT",
        num_args = 0..=1,
        default_missing_value = ":18516",
        conflicts_with_all = ["peer", "level", "facts"]
    )]
    pub listen: Option<Address>,
    /// Test the fabric to a node that runs self-test --listen (both with the same RDMA_INIT_TOKEN of 16 bytes or more)
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["level", "facts"])]
    pub peer: Option<Address>,
    /// Without RDMA_INIT_TOKEN: accept any peer that connects or answers
    #[arg(long, conflicts_with = "facts")]
    pub any_peer: bool,
    /// How long to wait for the other node
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parsers::wait)]
    pub wait: Duration,
    /// Skip this check (repeatable)
    #[arg(long, value_name = "ID", value_parser = parsers::check)]
    pub skip: Vec<String>,
    /// Run only this check (repeatable)
    #[arg(long, value_name = "ID", value_parser = parsers::check)]
    pub only: Vec<String>,
    /// Print only what is wrong
    #[arg(long, short, conflicts_with_all = ["list", "json"])]
    pub quiet: bool,
    /// Print one line of JSON, as compare reads it
    #[arg(long)]
    pub json: bool,
}

/// The others are keys of the configuration.
#[derive(Debug, Args)]
pub struct PreflightArguments {
    /// Print one JSON document (node 0)
    #[arg(long)]
    pub json: bool,
}

/// The host that a command reports on.
#[derive(Debug, Args)]
pub struct Host {
    /// Use a facts document that `inspect --json` wrote, or demo:NAME
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
}

impl Action {
    /// Returns the facts document in place of this host.
    pub fn facts(&self) -> Option<&Path> {
        let host = match self {
            Action::Inspect { host, .. } | Action::Plan { host, .. } | Action::Profiles { host, .. } => host,
            Action::Env(arguments) => &arguments.host,
            Action::SelfTest(arguments) => &arguments.host,
            _ => return None,
        };
        host.facts.as_deref()
    }
}

/// The names of the subcommands that the help shows.
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
    "completions",
    "man",
    "licenses",
    "help",
];

/// Returns whether a word names a subcommand, including one that the help does not show.
fn is_command(word: &[u8]) -> bool {
    word == b"verbs-probe" || ACTIONS.iter().any(|action| action.as_bytes() == word)
}

/// The shells that rdma-init prints completions for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}
