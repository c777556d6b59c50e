//! torchrun's options, parsed as Python's argparse does.
//!
//! The names are those of `get_args_parser` in torch/distributed/run.py up to PyTorch 2.10, and of
//! torch/distributed/launch.py. argparse also accepts an unambiguous prefix of a long name, and short options
//! in one word: `--nnode=4`, `-t3`, `-mt 3`.

/// The options with a value.
const VALUED: &[&str] = &[
    "--nnodes",
    "--nproc-per-node",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--max-restarts",
    "--monitor-interval",
    "--start-method",
    "--event-log-handler",
    "--role",
    "--log-dir",
    "--logdir",
    "--redirects",
    "--tee",
    "--local-ranks-filter",
    "--duplicate-stdout-filters",
    "--duplicate-stderr-filters",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--local-addr",
    "--logs-specs",
    "--numa-binding",
    "--signals-to-handle",
    "--shutdown-timeout",
];

/// The options without a value.
const FLAGS: &[&str] =
    &["--standalone", "--module", "--no-python", "--run-path", "--use-env", "--virtual-local-rank", "--help"];

/// The short options with a value; all other short options are flags.
const SHORT_VALUED: [char; 2] = ['r', 't'];

/// The options between torchrun and its script.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TorchrunOptions {
    /// The long options in the order of the words, with their full names and with hyphens.
    read: Vec<(&'static str, String)>,
    /// An unknown option, if the next word may be either its value or the script.
    pub unclear: Option<String>,
}

/// The kind of a long option.
#[derive(Clone, Copy)]
enum Long {
    Valued(&'static str),
    Flag(&'static str),
    /// Not in the list, or a prefix of several options.
    Unknown,
}

impl TorchrunOptions {
    /// Parses the words after torchrun.
    pub(super) fn of(words: &[String]) -> TorchrunOptions {
        let mut options = TorchrunOptions::default();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next_if(|word| word.starts_with('-') && !["-", "--"].contains(word)) {
            if !word.starts_with("--") {
                // A short option's value is the rest of its word, or the next word.
                let is_valued = |c: char| SHORT_VALUED.contains(&c);
                if word.find(is_valued).is_some_and(|at| at + 1 == word.len()) {
                    words.next();
                }
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            match (long(name), value) {
                (Long::Flag(name), _) => options.read.push((name, String::new())),
                (Long::Valued(name), Some(value)) => options.read.push((name, value.to_owned())),
                (Long::Valued(name), None) => {
                    let value = words.next().unwrap_or_default();
                    options.read.push((name, value.to_owned()));
                }
                (Long::Unknown, Some(_)) => {}
                // A value does not begin with a hyphen, so this option has no value.
                (Long::Unknown, None) if words.peek().is_some_and(|next| next.starts_with('-')) => {}
                (Long::Unknown, None) => {
                    options.unclear = Some(name.to_owned());
                    break;
                }
            }
        }
        options
    }

    /// Returns the value of an option. If it is repeated, the last value counts.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.read.iter().rev().find(|(option, _)| *option == name).map(|(_, value)| value.as_str())
    }
}

fn long(name: &str) -> Long {
    let name = name.replace('_', "-");
    let valued = VALUED.iter().map(|option| (*option, Long::Valued(option)));
    let flags = FLAGS.iter().map(|option| (*option, Long::Flag(option)));
    let all: Vec<(&str, Long)> =
        valued.chain(flags).filter(|(option, _)| option.starts_with(&name)).collect();
    let exact = all.iter().find(|(option, _)| *option == name);
    match (exact, &all[..]) {
        (Some((_, long)), _) | (None, [(_, long)]) => *long,
        _ => Long::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> TorchrunOptions {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        TorchrunOptions::of(&words)
    }

    #[test]
    fn a_part_of_a_name_stands_for_the_only_option_that_begins_so() {
        for (words, name, value) in [
            ("--nnode=4 train.py", "--nnodes", Some("4")),
            ("--nn 4 train.py", "--nnodes", Some("4")),
            ("--nnodes 2 --nnode=4 train.py", "--nnodes", Some("4")),
            ("--node-=1 train.py", "--node-rank", Some("1")),
            ("--node_r 1 train.py", "--node-rank", Some("1")),
            ("--master_a=a train.py", "--master-addr", Some("a")),
            ("--rdzv-e a:1 train.py", "--rdzv-endpoint", Some("a:1")),
            ("--rdzv_i=7 train.py", "--rdzv-id", Some("7")),
            ("--stand train.py --nnodes=4", "--standalone", Some("")),
            // Several options begin like this, and torchrun rejects them.
            ("--n=4 train.py", "--nnodes", None),
            ("--master=a train.py", "--master-addr", None),
            ("--sta --nnodes=2 train.py", "--standalone", None),
            // Options of the script, and one that torchrun does not know.
            ("train.py --nnode=4", "--nnodes", None),
            ("--role a -- train.py --nnode=4", "--nnodes", None),
            ("-nnodes=4 train.py", "--nnodes", None),
        ] {
            assert_eq!(of(words).value(name), value, "{words}");
        }
    }

    #[test]
    fn values_of_short_options_are_in_the_same_word_or_in_the_next_one() {
        for words in
            ["-t3", "-t 3", "-mt3", "-mt 3", "-t=3", "-m", "-r 0:1 -t3", "--te 3", "--tee -1", "--lo-=x"]
        {
            assert_eq!(of(&format!("{words} --nnodes=4 train.py")).value("--nnodes"), Some("4"), "{words}");
        }
        for words in ["", "--nnodes", "-t", "-", "--", "-m --", "--=", "--=4"] {
            assert!(of(words).value("--nnodes").is_none_or(str::is_empty), "{words}");
        }
    }

    #[test]
    fn behind_an_option_of_a_later_release_only_what_is_certain_counts() {
        let certain = of("--new=1 --newer --nnodes=4 train.py");
        assert_eq!((certain.value("--nnodes"), &certain.unclear), (Some("4"), &None));
        let unclear = of("--role a --new train.py --nnodes=4");
        assert_eq!((unclear.value("--role"), unclear.value("--nnodes")), (Some("a"), None));
        assert_eq!(unclear.unclear.as_deref(), Some("--new"));
    }
}
