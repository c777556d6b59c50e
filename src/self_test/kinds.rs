//! The checks that there are.

use clap::ValueEnum;

use super::check::{Check, Outcome};

/// A check, before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub id: &'static str,
    pub title: &'static str,
    pub level: Level,
    /// The findings of the plan and its checks that it stands for.
    pub findings: &'static [&'static str],
}

/// How far a self-test goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Read files and limits only
    Quick,
    /// Open and use every device through verbs as well, each in a process of its own
    Verbs,
    /// Every rail to another node.
    #[value(skip)]
    Pair,
}

impl Kind {
    /// The check, left out.
    pub fn skipped(&self, why: &str) -> Check {
        Check { message: Some(why.to_owned()), ..check(self.id, Outcome::Skipped) }
    }
}

/// A check that came out so, and nothing more.
pub fn check(id: &str, outcome: Outcome) -> Check {
    Check {
        id: id.to_owned(),
        title: find(id).map_or("", |kind| kind.title).to_owned(),
        outcome,
        subject: None,
        evidence: Vec::new(),
        message: None,
        fix: None,
        took_us: 0,
    }
}

const fn quick(id: &'static str, title: &'static str, findings: &'static [&'static str]) -> Kind {
    Kind { id, title, level: Level::Quick, findings }
}

const fn verbs(id: &'static str, title: &'static str) -> Kind {
    Kind { id, title, level: Level::Verbs, findings: &[] }
}

const fn pair(id: &'static str, title: &'static str) -> Kind {
    Kind { id, title, level: Level::Pair, findings: &[] }
}

/// In the order in which they are shown.
pub const KINDS: &[Kind] = &[
    quick("memlock", "memory can be pinned", &["memlock"]),
    quick("nofile", "files that may be open", &[]),
    quick("stack", "size of the stack", &[]),
    quick("shared-memory", "room in /dev/shm", &["shared-memory"]),
    quick("shared-memory-writable", "/dev/shm can be written", &[]),
    quick("state", "the state folder can be written", &[]),
    quick("libibverbs", "libibverbs in the image", &["no-libibverbs"]),
    quick("provider", "provider for each HCA", &["no-provider"]),
    quick("librdmacm", "librdmacm in the image", &[]),
    quick("nccl", "NCCL in the image", &["nccl-versions-differ", "nccl-version", "nccl-too-old"]),
    quick("cuda", "CUDA of the image", &["cuda-too-old"]),
    quick("plugin", "net plugin", &["plugin-not-found", "no-plugin"]),
    quick(
        "fabric",
        "a fabric for the job",
        &[
            "no-fabric",
            "no-usable-hca",
            "not-allotted",
            "no-hca-selected",
            "default-route-hca-skipped",
            "ib-disabled",
            "unexpected-hcas",
            "several-ib-subnets",
        ],
    ),
    quick("unused", "ports that the job leaves alone", &["idle-hcas"]),
    quick("uverbs", "uverbs nodes can be opened", &["uverbs-denied"]),
    quick("port", "ports are ACTIVE", &["port-down"]),
    quick(
        "device",
        "devices that NCCL works on",
        &[
            "iwarp",
            "erdma-iwarp",
            "unknown-device",
            "mixed-link-layers",
            "too-many-hcas",
            "published-hcas-differ",
        ],
    ),
    quick("rate", "rates are equal", &["rates-differ"]),
    quick("pci-link", "PCI links at full speed and width", &[]),
    quick("counters", "no errors on the links", &[]),
    quick("gpu-nic", "a near HCA for each GPU", &[]),
    quick(
        "gid",
        "GID slots",
        &[
            "no-own-gid",
            "gid-index",
            "gid-search",
            "gid-slots-differ",
            "addr-range",
            "address-family",
            "published-gid-differs",
        ],
    ),
    quick("pkey", "full members of a partition", &["pkey"]),
    quick("address", "rails have an address", &["no-address"]),
    quick("mtu", "MTU is equal on all rails", &[]),
    quick("route", "rails have a route", &["no-route", "overlapping-subnets"]),
    quick(
        "interface",
        "interface of the bootstrap",
        &[
            "stale-interface",
            "no-interface",
            "local-interface",
            "interface-down",
            "interface-missing",
            "bootstrap-on-rail",
            "default-route-rail",
            "comm-id",
            "published-interface-differs",
        ],
    ),
    quick(
        "count",
        "as many cards and NICs as published",
        &["card-count", "nic-count", "more-hcas-than-gpus"],
    ),
    quick("gpudirect", "NICs reach the memory of GPUs", &["no-gpudirect"]),
    quick(
        "variables",
        "variables mean what they seem to",
        &[
            "conf-file",
            "conf-line",
            "debug-level",
            "ib-timeout",
            "kept-back",
            "level",
            "list-separator",
            "list-too-long",
            "missing-file",
            "misspelt-variable",
            "nccl-conf-value",
            "not-a-number",
            "not-as-published",
            "one-character",
            "out-of-range",
            "prefix-match",
            "repeated-sign",
            "retired-name",
            "stale-hca",
            "switch-value",
            "tuning-list",
            "unknown-variable",
            "variable-name",
            "variable-of-other-release",
        ],
    ),
    quick("signals", "a stop reaches the command", &["shell-is-pid-1"]),
    quick("readable", "what describes this host can be read", &["unreadable"]),
    quick("nccl-decides", "NCCL will use the fabric", &["no-network", "runs-on-tcp", "empty-value"]),
    verbs("verbs-open", "the device opens through verbs"),
    verbs("verbs-memory", "memory can be registered"),
    verbs("verbs-loopback", "data arrives over the port"),
    pair("pair-connect", "another node is there"),
    pair("pair-rails", "as many rails on both nodes"),
    pair("pair-link-layer", "one link layer on both ends of each rail"),
    pair("pair-gid", "one type and family of GIDs on both ends"),
    pair("pair-mtu", "one MTU on both ends"),
    pair("pair-nccl", "one release of NCCL on both nodes"),
    pair("pair-data", "data arrives over the rail, both ways"),
];

/// The check that stands for a finding.
pub fn of_finding(id: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.findings.contains(&id))
}

pub fn find(id: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_distinct_and_no_finding_has_two_checks() {
        let ids: BTreeSet<&str> = KINDS.iter().map(|kind| kind.id).collect();
        assert_eq!(ids.len(), KINDS.len());
        let findings: Vec<&str> = KINDS.iter().flat_map(|kind| kind.findings).copied().collect();
        let distinct: BTreeSet<&str> = findings.iter().copied().collect();
        assert_eq!(findings.len(), distinct.len());
    }
}
