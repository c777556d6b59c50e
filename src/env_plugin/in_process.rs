//! Determines which of a process's NCCL variables are its own, this node's, or copies of another node's, and
//! what NCCL gets for each.

use std::collections::BTreeSet;

use super::answer::{Answer, MARKER, Settled, is_copy};
use crate::facts::environment::Environment;
use crate::libraries::nccl::env_plugin::{is_asked, is_read_before};

/// The source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This container's start filled it in.
    Start,
    /// This container's user set it for the start, in its environment or in the configuration.
    OfUser,
    /// Another start filled it in, and a tool copied it.
    Copy,
    /// It names only devices that this node does not have.
    Foreign,
    /// The process's parent or its program set it.
    Process,
    /// The process does not have the variable.
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub name: String,
    pub value: Option<String>,
    pub origin: Origin,
    /// The value that NCCL gets; `None` if NCCL decides itself.
    pub given: Option<String>,
}

/// What is known about this container.
pub(crate) struct Here<'a> {
    pub node: &'a str,
    /// The variables that its start filled in.
    pub filled: &'a [(&'a str, &'a str)],
    /// The variables that the user set for the start.
    pub of_user: &'a [(&'a str, &'a str)],
    /// The values in NCCL's conf files for the variables that the process lacks, in order of precedence.
    pub conf: &'a [(&'a str, &'a str)],
    /// The plugin's answers, if NCCL asks the plugin in the process.
    pub settled: Option<&'a Settled<'a>>,
}

pub(crate) fn variables(process: &Environment, here: &Here) -> Vec<Variable> {
    let known = [here.filled, here.of_user, here.conf].into_iter().flatten().map(|(name, _)| *name);
    let names: BTreeSet<&str> = process.names().chain(known).collect();
    let is_shown = |name: &&str| is_asked(name) && ![MARKER, "NCCL_VERSION"].contains(name);
    names.into_iter().filter(is_shown).map(|name| variable(name, process, here)).collect()
}

fn variable(name: &str, process: &Environment, here: &Here) -> Variable {
    let value = process.get(name);
    // NCCL first puts the lines of its conf files into the environment. A marker in a conf file says nothing
    // about the process's original environment, and vice versa.
    let read = value.or_else(|| find(here.conf, name));
    let of_conf = || find(here.conf, MARKER).filter(|_| process.get(MARKER).is_none());
    let marker = if value.is_some() { process.get(MARKER) } else { of_conf() };
    let bytes = |text: Option<&'_ str>| text.map(|text| text.as_bytes().to_vec());
    let (read_bytes, marker) = (bytes(read), bytes(marker));
    let answer = here
        .settled
        .filter(|_| !is_read_before(name))
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
        Some(value) if find(here.of_user, name) == Some(value) => Origin::OfUser,
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
        let text = "rdma-init env plugin 1\nnode 0a1b\nset NCCL_IB_HCA==mlx5_1\nset NCCL_SOCKET_IFNAME==eth0\nset NCCL_IB_TC=106\nset NCCL_DEBUG_SUBSYS=ALL\nend\n";
        let decision = Decision::parse(text.as_bytes()).unwrap();
        let interfaces = [Device { name: b"eth0", id: b"", pci: b"" }];
        let present = Present { hcas: None, interfaces: Some(&interfaces) };
        let mut memory = vec![0; 4096];
        let settled = Settled::new(&decision, present, &|_, _| false, &mut Arena::new(&mut memory)).unwrap();
        let hash = String::from_utf8(hash(b"=mlx5_7").into()).unwrap();
        let marker = format!("1:ffff:IB_HCA={hash},DEBUG_FILE={hash}");
        let process = Environment::from([
            ("NCCL_IB_HCA", "=mlx5_7"),
            ("NCCL_DEBUG_FILE", "=mlx5_7"),
            ("NCCL_SOCKET_IFNAME", "bond0"),
            ("NCCL_DEBUG", "INFO"),
            ("NCCL_ALGO", "Ring"),
            ("NCCL_NTHREADS", "256"),
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
            let conf = [
                ("NCCL_IB_TC", "106"),
                ("NCCL_DEBUG_SUBSYS", "NET"),
                ("NCCL_PROTO", "LL"),
                ("PATH", "/"),
                ("NCCL_PROTO", "Simple"),
            ];
            let of_user = [("NCCL_NTHREADS", "256")];
            let here = Here { node: "0a1b", filled: &filled, of_user: &of_user, conf: &conf, settled };
            let found = variables(&process, &here).into_iter();
            found.map(|one| (one.name, one.origin, one.given)).collect()
        };
        let row = |name: &str, origin, given: &str| (name.to_owned(), origin, Some(given.to_owned()));
        let wanted = [
            row("NCCL_ALGO", Origin::Start, "Ring"),
            row("NCCL_DEBUG", Origin::Process, "INFO"),
            // NCCL reads it before it asks a plugin.
            row("NCCL_DEBUG_FILE", Origin::Copy, "=mlx5_7"),
            row("NCCL_DEBUG_SUBSYS", Origin::Absent, "NET"),
            row("NCCL_IB_HCA", Origin::Copy, "=mlx5_1"),
            row("NCCL_IB_TC", Origin::Absent, "106"),
            row("NCCL_NTHREADS", Origin::OfUser, "256"),
            // Only a conf file contains it, and its first line counts.
            row("NCCL_PROTO", Origin::Absent, "LL"),
            row("NCCL_SOCKET_IFNAME", Origin::Foreign, "=eth0"),
        ];
        assert_eq!(rows(Some(&settled)), wanted);
        // Without the plugin, NCCL uses the existing value.
        let without = rows(None);
        assert_eq!(without[4], row("NCCL_IB_HCA", Origin::Copy, "=mlx5_7"));
        assert_eq!(without[8], row("NCCL_SOCKET_IFNAME", Origin::Process, "bond0"));
    }

    #[test]
    fn a_list_of_the_process_itself_gets_no_late_port_by_the_marker_of_a_conf_file() {
        let text = "rdma-init env plugin 1\nnode 0a1b\nset NCCL_IB_HCA==mlx5_1\nlate mlx5_2 1 mlx5_2 - 0000:02:00.0\nend\n";
        let decision = Decision::parse(text.as_bytes()).unwrap();
        let hca = |name: &'static str, pci: &'static str| Device {
            name: name.as_bytes(),
            id: b"",
            pci: pci.as_bytes(),
        };
        let hcas = [hca("mlx5_1", "0000:01:00.0"), hca("mlx5_2", "0000:02:00.0")];
        let present = Present { hcas: Some(&hcas), interfaces: None };
        let mut memory = vec![0; 4096];
        let settled = Settled::new(&decision, present, &|_, _| true, &mut Arena::new(&mut memory)).unwrap();
        let marker = format!("1:0a1b:IB_HCA={}", String::from_utf8(hash(b"=mlx5_1").into()).unwrap());
        let filled = [("NCCL_IB_HCA", "=mlx5_1")];
        let conf = [("NCCL_IB_HCA", "=mlx5_1"), (MARKER, marker.as_str())];
        let given = |process: Environment| {
            let here =
                Here { node: "0a1b", filled: &filled, of_user: &[], conf: &conf, settled: Some(&settled) };
            variables(&process, &here).remove(0).given.unwrap()
        };
        assert_eq!(given(Environment::from([])), "=mlx5_1,mlx5_2");
        assert_eq!(given(Environment::from(conf)), "=mlx5_1,mlx5_2");
        assert_eq!(given(Environment::from(filled)), "=mlx5_1");
    }
}
