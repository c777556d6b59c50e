//! Reads from the flags whether to refuse the command, as far as that is possible without the parser. The
//! parser needs more stack than everything else before the preparation (64 KiB are too few), and a crash in
//! it must not start a command that a flag forbids to start.

use std::ffi::CString;

use figment::value::Value;

use super::ACTIONS;
use crate::config::Flag;

/// The keys of [`crate::init::Enforcing`], and the refusal's exit code.
const KEYS: [&str; 5] = ["require-rdma", "memlock", "self-test", "preflight", "refuse-exit-code"];

/// The only one of these flags without a value.
const REQUIRE_RDMA: &str = KEYS[0];

/// Returns these flags; `None` if one of rdma-init's own commands is called, because they refuse nothing.
pub(crate) fn flags(arguments: &[CString]) -> Option<Vec<Flag>> {
    let words = || arguments.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
    let ours: Vec<&str> = words().take_while(|word| *word != "--").collect();
    if ours.iter().any(|word| ACTIONS.contains(word)) {
        return None;
    }
    let next = ours.iter().skip(1).map(|word| Some(*word)).chain([None]);
    let given = ours.iter().zip(next).filter_map(|(word, next)| {
        let flag = word.strip_prefix("--")?;
        let (key, value) = match flag.split_once('=') {
            Some((key, value)) => (key, Value::from(value)),
            None if flag == REQUIRE_RDMA => (flag, Value::from(true)),
            None => (flag, Value::from(next?)),
        };
        KEYS.contains(&key).then(|| Flag::of(key, value))
    });
    Some(given.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::usage;

    #[test]
    fn the_early_flags_are_those_that_the_parser_finds() {
        for line in [
            "rdma-init --require-rdma -- x",
            "rdma-init --memlock enforce --keep A --preflight=warn -- x --require-rdma",
            "rdma-init --refuse-exit-code=7 --set A=b --self-test enforce -- x",
            "rdma-init --log-level error -- x --memlock off",
        ] {
            let line: Vec<CString> = line.split(' ').map(|word| CString::new(word).unwrap()).collect();
            let parsed = usage::parse(&line).unwrap().flags;
            let mut wanted: Vec<Flag> =
                parsed.into_iter().filter(|flag| KEYS.contains(&flag.key.as_str())).collect();
            let mut found = flags(&line).unwrap();
            wanted.sort_by(|a, b| a.key.cmp(&b.key));
            found.sort_by(|a, b| a.key.cmp(&b.key));
            assert_eq!(found, wanted, "{line:?}");
        }
        let own = ["rdma-init", "--require-rdma", "exec", "--", "x"].map(|word| CString::new(word).unwrap());
        assert_eq!(flags(&own), None);
    }
}
