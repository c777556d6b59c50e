//! Which of a process's variables of NCCL are its own, this node's, or copies of another's, and what NCCL
//! gets for each.

use std::collections::BTreeSet;

use super::answer::{Answer, MARKER, Settled, is_copy};
use crate::facts::environment::Environment;

const PREFIX: &str = "NCCL_";

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This container's start filled it in.
    Start,
    /// Another start filled it in, and a tool copied it.
    Copy,
    /// It names only devices that this node does not have.
    Foreign,
    /// The parent of the process, or its program.
    Process,
    /// The process does not have the variable.
    Absent,
}

/// A variable of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub name: String,
    pub value: Option<String>,
    pub origin: Origin,
    /// What NCCL gets; `None` if it decides by itself.
    pub given: Option<String>,
}

/// What is known of this container.
pub(crate) struct Here<'a> {
    pub node: &'a str,
    /// What its start filled in.
    pub filled: &'a [(&'a str, &'a str)],
    /// What NCCL's conf file has for the variables that a process lacks.
    pub conf: &'a [(&'a str, &'a str)],
    /// If NCCL asks the plugin in the process: what it answers.
    pub settled: Option<&'a Settled<'a>>,
}

pub(crate) fn variables(process: &Environment, here: &Here) -> Vec<Variable> {
    let filled = here.filled.iter().map(|(name, _)| *name);
    let names: BTreeSet<&str> = process.names().chain(filled).collect();
    let is_shown = |name: &&str| name.starts_with(PREFIX) && ![MARKER, "NCCL_VERSION"].contains(name);
    names.into_iter().filter(is_shown).map(|name| variable(name, process, here)).collect()
}

fn variable(name: &str, process: &Environment, here: &Here) -> Variable {
    let value = process.get(name);
    // NCCL puts the lines of its conf file into the environment first.
    let with_conf = |name: &str| process.get(name).or_else(|| find(here.conf, name));
    let (read, marker) = (with_conf(name), with_conf(MARKER));
    let bytes = |text: Option<&'_ str>| text.map(|text| text.as_bytes().to_vec());
    let (read_bytes, marker) = (bytes(read), bytes(marker));
    let answer = here
        .settled
        .map(|settled| settled.answer(name.as_bytes(), read_bytes.as_deref(), marker.as_deref()))
        .unwrap_or(Answer::OfProcess);
    let text = |decided: &std::ffi::CStr| Some(decided.to_string_lossy().into_owned());
    let given = match answer {
        Answer::OfProcess => read.map(str::to_owned),
        Answer::Unset => None,
        Answer::Decided(decided) | Answer::InPlaceOfForeign(decided) => text(decided),
    };
    let is_copied = |value: &str| {
        let marker = process.get(MARKER).unwrap_or_default();
        is_copy(marker.as_bytes(), here.node.as_bytes(), name.as_bytes(), value.as_bytes())
    };
    let origin = match value {
        None => Origin::Absent,
        Some(value) if is_copied(value) => Origin::Copy,
        Some(value) if find(here.filled, name) == Some(value) => Origin::Start,
        Some(_) if matches!(answer, Answer::InPlaceOfForeign(_)) => Origin::Foreign,
        Some(_) => Origin::Process,
    };
    Variable { name: name.to_owned(), value: value.map(str::to_owned), origin, given }
}

fn find<'a>(pairs: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Arena, Decision, Device, Present, hash};
    use super::*;

    #[test]
    fn each_variable_has_its_origin_and_what_nccl_gets() {
        let text = "rdma-init env plugin 1\nnode 0a1b\nset NCCL_IB_HCA==mlx5_1\nset NCCL_SOCKET_IFNAME==eth0\nset NCCL_IB_TC=106\nend\n";
        let decision = Decision::parse(text.as_bytes()).unwrap();
        let interfaces = [Device { name: b"eth0", id: b"", pci: b"" }];
        let present = Present { hcas: None, interfaces: Some(&interfaces) };
        let mut memory = vec![0; 4096];
        let settled = Settled::new(&decision, present, &|_, _| false, &mut Arena::new(&mut memory)).unwrap();
        let hash = String::from_utf8(hash(b"=mlx5_7").into()).unwrap();
        let marker = format!("1:ffff:IB_HCA={hash}");
        let process = Environment::from([
            ("NCCL_IB_HCA", "=mlx5_7"),
            ("NCCL_SOCKET_IFNAME", "bond0"),
            ("NCCL_DEBUG", "INFO"),
            ("NCCL_ALGO", "Ring"),
            ("PATH", "/bin"),
            (MARKER, &marker),
        ]);
        let filled = [
            ("NCCL_IB_HCA", "=mlx5_1"),
            ("NCCL_SOCKET_IFNAME", "=eth0"),
            ("NCCL_IB_TC", "106"),
            ("NCCL_ALGO", "Ring"),
        ];
        let rows = |settled| -> Vec<(String, Origin, Option<String>)> {
            let conf = [("NCCL_IB_TC", "106")];
            let here = Here { node: "0a1b", filled: &filled, conf: &conf, settled };
            let found = variables(&process, &here).into_iter();
            found.map(|one| (one.name, one.origin, one.given)).collect()
        };
        let row = |name: &str, origin, given: &str| (name.to_owned(), origin, Some(given.to_owned()));
        let wanted = [
            row("NCCL_ALGO", Origin::Start, "Ring"),
            row("NCCL_DEBUG", Origin::Process, "INFO"),
            row("NCCL_IB_HCA", Origin::Copy, "=mlx5_1"),
            row("NCCL_IB_TC", Origin::Absent, "106"),
            row("NCCL_SOCKET_IFNAME", Origin::Foreign, "=eth0"),
        ];
        assert_eq!(rows(Some(&settled)), wanted);
        // Without the plugin, NCCL takes what is there.
        let without = rows(None);
        assert_eq!(without[2], row("NCCL_IB_HCA", Origin::Copy, "=mlx5_7"));
        assert_eq!(without[4], row("NCCL_SOCKET_IFNAME", Origin::Process, "bond0"));
    }
}
