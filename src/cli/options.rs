//! The start's options, each of them a key of the configuration, and which of them the other commands accept.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use figment::value::Value;

use crate::config::{self, Flag};

/// How an option is given: how often, and with what value.
#[derive(Clone, Copy)]
enum Form {
    /// Without a value.
    Switch,
    One(&'static str),
    /// `--option` alone, or `--option=false`.
    Boolean,
    /// Repeatable.
    Many(&'static str),
    /// Repeatable, and with commas.
    List(&'static str),
}

use Form::{Boolean, List, Many, One, Switch};

/// A key, and its option.
struct OptionRow(&'static str, Form, &'static str);

/// All of the start's options, by subject. They are read as text: the configuration checks their values, as
/// it does for a file and for variables.
///
/// A help text of up to 38 characters, or 42 in a section without long names, fits beside its option. If one
/// does not fit, clap puts all help texts of the section below their options.
const START: &[(&str, &[OptionRow])] = &[
    (
        "What to fill in",
        &[
            OptionRow("profile", One("NAME"), "Profile: auto (default), none, or a name"),
            OptionRow("profile-dir", One("DIR"), "Directory with your own profiles"),
            OptionRow("default-route-hca", One("WHEN"), "HCA on the default route: auto, use, skip"),
            OptionRow("instance-type", One("TYPE"), "Machine type, if rdma-init cannot find it"),
            OptionRow("keep", Many("VARIABLE"), "Never fill in this variable (repeatable)"),
            OptionRow("set", Many("VARIABLE=VALUE"), "Set this variable for COMMAND (repeatable)"),
            OptionRow("libraries", List("NAMES"), "Other libraries: auto, nccl (none), names"),
        ],
    ),
    (
        "When to refuse, and how long to prepare",
        &[
            OptionRow("require-rdma", Switch, "Refuse to start without a usable fabric"),
            OptionRow("memlock", One("MODE"), "Check pinned memory: off, warn, enforce"),
            OptionRow("self-test", One("MODE"), "Test this node: off, warn, enforce"),
            OptionRow("preflight", One("MODE"), "Test the job's fabric: off, warn, enforce"),
            OptionRow("refuse-exit-code", One("CODE"), "Exit code of a refusal [default: 121]"),
            OptionRow("prepare-timeout", One("TIME"), "Preparation time limit [default: 10s]"),
            OptionRow("wait-for-master", One("TIME"), "Wait until MASTER_ADDR resolves [default: no]"),
        ],
    ),
    (
        "Preflight",
        &[
            OptionRow("preflight-wait", One("TIME"), "Time to wait for all nodes [default: 10m]"),
            OptionRow("preflight-nodes", One("NODES"), "Number of nodes, if no launcher sets it"),
            OptionRow("preflight-node", One("INDEX"), "Index of this node (from 0), if not set"),
            OptionRow("preflight-meet", One("HOST[:PORT]"), "Name or address of node 0, if not set"),
            OptionRow("preflight-rounds", One("ROUNDS"), "Pairs to test: log (default) or full (all)"),
            OptionRow("preflight-each", One("TIME"), "Time limit for each port [default: 5s]"),
            OptionRow("preflight-min-bandwidth", One("GBPS"), "Report a rail below this rate as slow"),
            OptionRow("preflight-enforce-slow", Switch, "Fail if a rail is slow"),
            OptionRow("preflight-bisection", Boolean, "Load all nodes at once [default: true]"),
            OptionRow("preflight-exclude-file", One("FILE"), "File for the faulty nodes' names (node 0)"),
            OptionRow("preflight-exclude-format", One("FORMAT"), "Its format: lines (default), slurm"),
            OptionRow("preflight-html", One("FILE"), "File for a page with a heat map (node 0)"),
            OptionRow("preflight-json-file", One("FILE"), "File for the JSON document (node 0)"),
        ],
    ),
    (
        "Processes that enter the container",
        &[
            OptionRow("state-dir", One("DIR"), "Saved state [default: /run/rdma-init]"),
            OptionRow("write-nccl-conf", Boolean, "Add the variables to /etc/nccl.conf"),
            OptionRow("nccl-env-plugin", One("WHEN"), "Env plugin in each process: auto, off"),
            OptionRow("propagate", List("WHERE"), "Write to: profile, ssh, environment"),
        ],
    ),
    (
        "Supervision as PID 1",
        &[
            OptionRow("supervise", Switch, "Supervise even when not PID 1"),
            OptionRow("kill-group", Switch, "Forward signals to the process group"),
            OptionRow("stop-timeout", One("TIME"), "Time between SIGTERM and SIGKILL"),
            OptionRow("drain-timeout", One("TIME"), "Time for other processes to exit"),
            OptionRow("rewrite-signal", Many("FROM:TO"), "Forward FROM as TO (0: do not forward)"),
            OptionRow("remap-exit", Many("N[:M]"), "Exit with M (default 0) instead of N"),
            OptionRow("parent-death-signal", One("SIGNAL"), "Get this signal if the parent exits"),
            OptionRow("warn-on-reap", Switch, "Report each reaped orphan"),
            OptionRow("watch", One("MODE"), "Watch the ports: warn (default), off"),
            OptionRow("watch-interval", One("TIME"), "Time between checks [default: 10s]"),
            OptionRow("watch-after", One("TIME"), "Report idle ports after [default: 10m]"),
            OptionRow("watch-job", Boolean, "Say if all nodes stall [default: true]"),
            OptionRow("watch-metrics", One("FILE"), "Metrics for node_exporter's textfiles"),
            OptionRow("fabric-exit-code", One("CODE"), "Exit code if the fabric broke (2 to 124)"),
            OptionRow("on-finding", One("COMMAND"), "Run this for each warning of the watcher"),
        ],
    ),
    (
        "Report on standard error",
        &[
            OptionRow("log-format", One("FORMAT"), "text, json [default: text]"),
            OptionRow("log-level", One("LEVEL"), "error, warn, info, debug [default: info]"),
        ],
    ),
];

/// Returns whether a start has this option, named without dashes.
pub(super) fn is_of_start(name: &str) -> bool {
    START.iter().flat_map(|(_, rows)| rows.iter()).any(|row| row.0 == name)
}

/// The options of each command that makes a decision for a host.
const DECIDE: &[&str] = &[
    "profile",
    "profile-dir",
    "default-route-hca",
    "instance-type",
    "keep",
    "set",
    "libraries",
    "require-rdma",
    "state-dir",
];

/// The options of every command.
const REPORT: &[&str] = &["log-format", "log-level"];

/// The keys that each command accepts in addition to its own options: those that change what it does.
const TAKEN: &[(&str, &[&[&str]])] = &[
    ("inspect", &[&["profile-dir", "state-dir"], REPORT]),
    ("plan", &[DECIDE, &["memlock"], REPORT]),
    ("env", &[DECIDE, REPORT]),
    ("exec", &[DECIDE, &["memlock", "prepare-timeout"], REPORT]),
    ("profiles", &[&["profile-dir"], REPORT]),
    ("self-test", &[DECIDE, &["memlock"], REPORT]),
    ("preflight", &[DECIDE, REPORT]),
    ("compare", &[REPORT]),
    ("status", &[&["state-dir"], REPORT]),
    ("stat", &[REPORT]),
    ("install", &[REPORT]),
];

/// The prefix of the keys that the options of the command `preflight` omit.
pub(super) const PREFLIGHT: &str = "preflight-";

/// Adds the start's options, and to each command those of them that it accepts.
pub(super) fn added(cli: Command) -> Command {
    let rows = || START.iter().flat_map(|(_, rows)| rows.iter());
    let cli = TAKEN.iter().fold(cli, |cli, (command, taken)| {
        let takes = |OptionRow(key, ..): &&OptionRow| taken.iter().any(|keys| keys.contains(key));
        let own = rows().filter(|_| *command == "preflight").filter_map(of_preflight);
        let shared = rows().filter(takes).map(|row| arg(row).help_heading("Configuration"));
        cli.mut_subcommand(command, |command| command.args(own).args(shared))
    });
    // The command `preflight` shows these options in its own help.
    cli.args(of_start().map(|arg| {
        let is_shown = !arg.get_long().is_some_and(|option| option.starts_with(PREFLIGHT));
        arg.hide_short_help(!is_shown)
    }))
}

/// Returns the start's options.
pub(super) fn of_start() -> impl Iterator<Item = Arg> {
    START.iter().flat_map(|(heading, rows)| rows.iter().map(|row| arg(row).help_heading(*heading)))
}

fn arg(OptionRow(key, form, help): &OptionRow) -> Arg {
    let arg = Arg::new(*key).long(*key).help(*help);
    match *form {
        Switch => arg.action(ArgAction::SetTrue),
        One(value) => arg.action(ArgAction::Set).value_name(value),
        Boolean => {
            let arg = arg.action(ArgAction::Set).value_name("BOOLEAN");
            arg.num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        Many(value) => arg.action(ArgAction::Append).value_name(value),
        List(value) => arg.action(ArgAction::Append).value_name(value).value_delimiter(','),
    }
}

/// Returns the option of the command `preflight` for a preflight key, such as `--wait` for `preflight-wait`.
fn of_preflight(row: &OptionRow) -> Option<Arg> {
    row.0.strip_prefix(PREFLIGHT).map(|option| arg(row).long(option))
}

/// Returns the given options that are keys, as layers of the configuration.
pub(super) fn given(command: &Command, matches: &ArgMatches) -> Vec<Flag> {
    command.get_arguments().filter_map(|arg| flag(arg, matches)).collect()
}

fn flag(arg: &Arg, matches: &ArgMatches) -> Option<Flag> {
    let key = arg.get_id().as_str();
    config::is_key(key).then_some(())?;
    let is_given = matches.value_source(key) == Some(ValueSource::CommandLine);
    let option = arg.get_long().filter(|_| is_given)?.to_owned();
    let value = match arg.get_action() {
        ArgAction::SetTrue => Value::from(true),
        ArgAction::Append => {
            let texts: Vec<String> = matches.get_many::<String>(key)?.cloned().collect();
            // This is a table, because a value may contain a line break.
            let table = (key == "set").then(|| config::assignments(&texts)).flatten();
            table.unwrap_or_else(|| Value::from(texts))
        }
        _ => Value::from(matches.get_one::<String>(key)?.as_str()),
    };
    Some(Flag { key: key.to_owned(), option, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_an_option_of_the_start() {
        let mut options: Vec<&str> =
            START.iter().flat_map(|(_, rows)| rows.iter().map(|row| row.0)).collect();
        options.sort_unstable();
        assert_eq!(options, config::names());
    }

    /// A preflight key and the option of the command `preflight` have the same name.
    #[test]
    fn the_options_of_preflight_are_the_keys_without_their_beginning() {
        let cli = crate::cli::command();
        let preflight = cli.find_subcommand("preflight").unwrap();
        let keys = config::names().into_iter().filter_map(|key| key.strip_prefix(PREFLIGHT));
        let shared = DECIDE.iter().chain(REPORT).copied();
        let mut wanted: Vec<&str> = keys.chain(shared).chain(["help", "json"]).collect();
        let mut options: Vec<&str> = preflight.get_arguments().filter_map(Arg::get_long).collect();
        wanted.sort_unstable();
        options.sort_unstable();
        assert_eq!(options, wanted);
    }

    #[test]
    fn what_is_not_given_is_no_flag() {
        let flags = |line: &[&str]| {
            let mut command = crate::cli::command();
            let matches = command.try_get_matches_from_mut(line).unwrap();
            given(&command, &matches)
        };
        assert!(flags(&["rdma-init", "--", "true"]).is_empty());
        let line = ["rdma-init", "--kill-group", "--state-dir=", "--set=A=b\nc", "--", "true"];
        let flags = flags(&line);
        let mut names: Vec<&str> = flags.iter().map(|flag| flag.key.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["kill-group", "set", "state-dir"]);
        let set = flags.iter().find(|flag| flag.key == "set").unwrap();
        assert_eq!(set.value.find_ref("A").and_then(Value::as_str), Some("b\nc"));
    }
}
