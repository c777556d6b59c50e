//! The options that the command line passes to `ray start`, either directly or in a shell command: `bash -c
//! 'ray start ...'`.

use std::ffi::CString;

use serde::{Deserialize, Serialize};

/// The options that tell Ray the address of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RayStart {
    /// The value of `--node-ip-address` as written: a shell may substitute a variable in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_ip_address: Option<String>,
    /// The value of `--address`, which every node except the first one gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// The most words of a command line to examine.
const MOST_WORDS: usize = 256;
/// In bytes: the longest value to keep.
const LONGEST: usize = 256;

/// Reads the options. Returns `None` if the command line has no `ray start`, or has several, so that a script
/// chooses one.
pub(crate) fn read(command: &[CString]) -> Option<RayStart> {
    let texts = command.iter().filter_map(|word| word.to_str().ok());
    let words: Vec<&str> = texts.flat_map(str::split_ascii_whitespace).take(MOST_WORDS).collect();
    let pairs = words.iter().zip(words.iter().skip(1)).enumerate();
    let mut starts = pairs.filter(|(_, (ray, start))| is_ray(bare(ray)) && bare(start) == "start");
    let (Some((at, _)), None) = (starts.next(), starts.next()) else { return None };
    let of_start = words.iter().skip(at + 1);
    // A shell ends the command at a word that is one of these operators, or after a word that ends in a
    // semicolon.
    let rest = of_start.clone().take_while(|word| !["&&", "||", "|", "&", ";"].contains(word));
    let last = rest.clone().position(|word| word.ends_with(';')).map_or(MOST_WORDS, |at| at + 1);
    let mut rest = rest.take(last).map(|word| bare(word));
    let mut found = RayStart::default();
    while let Some(word) = rest.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let option = match name {
            "--node-ip-address" => &mut found.node_ip_address,
            "--address" => &mut found.address,
            _ => continue,
        };
        *option =
            value.or_else(|| rest.next()).map(bare).filter(|value| value.len() <= LONGEST).map(str::to_owned);
    }
    Some(found)
}

/// Returns whether this word is Ray's program or Python module.
fn is_ray(word: &str) -> bool {
    word.rsplit('/').next() == Some("ray") || word == "ray.scripts.scripts"
}

/// Returns a word without the shell's quotes, parentheses, and semicolon around it.
fn bare(word: &str) -> &str {
    word.trim_end_matches(';').trim_matches(['\'', '"', '(', ')'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_count_however_the_command_is_started() {
        let read = |words: &[&str]| {
            read(&words.iter().map(|word| CString::new(*word).unwrap()).collect::<Vec<_>>())
                .map(|start| (start.node_ip_address, start.address))
        };
        let own = |address: &str| Some((Some(address.to_owned()), None));
        assert_eq!(read(&["ray", "start", "--head", "--node-ip-address=10.0.0.5"]), own("10.0.0.5"));
        assert_eq!(
            read(&["/opt/bin/ray", "start", "--node-ip-address", "10.0.0.5", "--block"]),
            own("10.0.0.5")
        );
        assert_eq!(read(&["python3", "-m", "ray.scripts.scripts", "start", "--head"]), Some((None, None)));
        assert_eq!(
            read(&["bash", "-c", "ulimit -n 65536; ray start --address='10.0.0.1:6379' --block; sleep inf"]),
            Some((None, Some("10.0.0.1:6379".to_owned())))
        );
        assert_eq!(read(&["sh", "-c", "ray start --node-ip-address=\"$IP\" && run"]), own("$IP"));
        for run in ["&& run", "; run", "--block; run"] {
            let text = format!("ray start {run} --node-ip-address=1.2.3.4");
            assert_eq!(read(&["sh", "-c", &text]), Some((None, None)), "{text}");
        }
        for none in [
            &["ray", "status"][..],
            &["start", "ray"],
            &["ray"],
            &["sh", "-c", "ray start || ray start"],
            &[],
        ] {
            assert_eq!(read(none), None, "{none:?}");
        }
        let long = format!("--address={}", "x".repeat(LONGEST + 1));
        assert_eq!(read(&["ray", "start", &long]), Some((None, None)));
        let mut many = vec!["x"; MOST_WORDS];
        many.extend(["ray", "start"]);
        assert_eq!(read(&many), None);
    }
}
