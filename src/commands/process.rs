//! Implements `rdma-init plan --in PID`: shows which of a running process's NCCL variables are its own,
//! which come from this node, and which are copies from another node.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use nix::unistd::Uid;

use crate::config::Config;
use crate::env_plugin::DECISION_FILE;
use crate::env_plugin::answer::{Arena, Decision, Device, Present, Settled};
use crate::env_plugin::decision::node;
use crate::env_plugin::in_process::{Here, variables};
use crate::facts::Facts;
use crate::facts::environment::Environment;
use crate::facts::identity::Identity;
use crate::facts::reader::of_kernel;
use crate::facts::settings::{Assignment, conf_files};
use crate::libraries::nccl::conf;
use crate::libraries::nccl::env_plugin::VARIABLE;
use crate::pipeline::read;
use crate::report;
use crate::state::find::{Found, find};
use crate::state::folder::Folder;
use crate::state::pid1::runs_this_program;
use crate::sys::user;

/// In bytes: the shared object reads no more than this.
const LONGEST: u64 = 64 * 1024;

pub(super) fn run(out: &mut impl Write, pid: u32, config: &Config) -> anyhow::Result<()> {
    if pid.try_into().is_ok_and(runs_this_program) {
        bail!(
            "process {pid} is rdma-init itself, whose environment no library reads: name a process of the job"
        );
    }
    let process = environment(pid)?;
    let found = find(&config.state_dir).ok();
    let given: Vec<(&str, &str)> = found.iter().flat_map(|found| found.run.given()).collect();
    let is_filled =
        |(name, _): &(&str, &str)| found.as_ref().is_some_and(|found| found.run.reasons.contains_key(*name));
    let (filled, of_user): (Vec<_>, Vec<_>) = given.into_iter().partition(is_filled);
    let conf = conf_of(pid, &process);
    let conf: Vec<(&str, &str)> = conf.iter().map(|line| (line.name.as_str(), line.value.as_str())).collect();
    let named = |pairs: &[(&str, &str)]| {
        pairs.iter().find(|(name, _)| *name == VARIABLE).map(|(_, value)| (*value).to_owned())
    };
    let ours = named(&filled);
    let asks = process.get(VARIABLE).map(str::to_owned).or_else(|| named(&conf));
    let text = match ours.is_some() && asks == ours {
        true => found.as_ref().and_then(decision_of).unwrap_or_default(),
        false => Vec::new(),
    };
    let decision = Decision::parse(&text);
    let facts = read::fabric_facts();
    let (hcas, interfaces) = devices(&facts);
    let present = Present {
        hcas: (!hcas.is_empty()).then_some(hcas.as_slice()),
        interfaces: (!interfaces.is_empty()).then_some(interfaces.as_slice()),
    };
    let mut memory = vec![0; 64 * 1024];
    let is_active = |hca: &[u8], port: &[u8]| is_active(&facts, hca, port);
    let settled = decision
        .and_then(|decision| Settled::new(&decision, present, &is_active, &mut Arena::new(&mut memory)));
    let here =
        Here { node: &node(), filled: &filled, of_user: &of_user, conf: &conf, settled: settled.as_ref() };
    Ok(report::process::write(out, pid, settled.is_some(), &variables(&process, &here))?)
}

/// Returns the environment that a process was started with.
fn environment(pid: u32) -> anyhow::Result<Environment> {
    let folder = format!("/proc/{pid}");
    if !Path::new(&folder).exists() {
        bail!("there is no process {pid} here");
    }
    let bytes = fs::read(format!("{folder}/environ")).with_context(|| {
        let advice = match user::effective().is_root() {
            true => "A thread of the kernel has none",
            false => "Only its own user and root may read it",
        };
        format!("cannot read the environment of process {pid}. {advice}")
    })?;
    let mounts = fs::read_link(format!("{folder}/ns/mnt")).unwrap_or_default();
    if mounts.as_os_str() != Identity::own().mounts.as_str() {
        bail!(
            "process {pid} is in another container (mount namespace {}). Run this command there",
            mounts.display()
        );
    }
    Ok(Environment::of_process(&bytes))
}

/// Returns the lines of the conf files that NCCL and RCCL read in the process, in order of precedence. A
/// file named in NCCL_CONF_FILE replaces the one in the home directory.
fn conf_of(pid: u32, process: &Environment) -> Vec<Assignment> {
    let own = process.get("NCCL_CONF_FILE").filter(|file| !file.is_empty());
    let is_read = |file: &String| own.is_none_or(|own| own == file || file.starts_with("/etc/"));
    let folder = Path::new("/proc").join(pid.to_string()).join("cwd");
    let texts = conf_files(process, None).into_iter().filter(is_read);
    texts.filter_map(|file| of_kernel(folder.join(file))).flat_map(|text| conf::assignments(&text)).collect()
}

/// Returns the decision that the shared object reads.
fn decision_of(found: &Found) -> Option<Vec<u8>> {
    let users = [Uid::from_raw(0), user::effective()];
    let folder = Folder::open(found.folder.as_ref()?, &users).ok()?;
    folder.read_of(DECISION_FILE, &users, LONGEST).ok().map(|(bytes, _)| bytes)
}

fn is_active(facts: &Facts, hca: &[u8], port: &[u8]) -> bool {
    let found = facts.rdma.iter().find(|found| found.name.as_bytes() == hca);
    found.is_some_and(|found| {
        found.ports.iter().any(|found| found.number.to_string().as_bytes() == port && found.is_active())
    })
}

/// Returns the devices that this node has now.
fn devices(facts: &Facts) -> (Vec<Device<'_>>, Vec<Device<'_>>) {
    let hcas = facts.rdma.iter().map(|hca| Device {
        name: hca.name.as_bytes(),
        id: hca.node_guid.as_deref().unwrap_or_default().as_bytes(),
        pci: hca.pci_address.as_deref().unwrap_or_default().as_bytes(),
    });
    let interfaces = facts.net.interfaces.iter().map(|interface| Device {
        name: interface.name.as_bytes(),
        id: b"",
        pci: interface.pci_address.as_deref().unwrap_or_default().as_bytes(),
    });
    (hcas.collect(), interfaces.collect())
}
