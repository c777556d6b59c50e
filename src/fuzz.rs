//! What the fuzzers call: one function for each kind of untrusted bytes that rdma-init reads. Each function
//! takes any bytes, and asserts what must hold for them besides the absence of a panic. The binary does not
//! contain this module: `fuzz/` builds the library with it, and the unit tests run each function on the
//! inputs in `fuzz/corpus`.

use std::cell::RefCell;

use crate::config::{self, Config};
use crate::env_plugin::{answer, copies};
use crate::facts::document::Document;
use crate::facts::environment::Environment;
use crate::facts::secret::shown;
use crate::facts::settings::{self, Settings};
use crate::facts::start::Start;
use crate::facts::{Facts, Reader};
use crate::libraries::nccl::conf;
use crate::libraries::nccl::version::{NEWEST, Version};
use crate::pipeline;
use crate::profiles::{self, Profiles};
use crate::report;
use crate::{block, facts, image, init, libraries, preflight, resolve, self_test, state, watch, wire};

pub type Target = fn(&[u8]);

/// The targets by name. Each has a directory in `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("conf", conf_file),
    ("dns", resolve::fuzz::answers),
    ("dra", facts::fuzz::dra),
    ("elf", image::fuzz::elf),
    ("environment", environment),
    ("facts", facts_document),
    ("ld-so-cache", image::fuzz::ld_so_cache),
    ("netlink", facts::fuzz::netlink),
    ("packages", image::fuzz::packages),
    ("proc", facts::fuzz::proc),
    ("profile", profiles::fuzz),
    ("ras", watch::ras::fuzz::answer),
    ("state", saved_state),
    ("sysfs", facts::fuzz::sysfs),
    ("vllm-list", vllm_list),
    ("wire", messages),
];

thread_local! {
    static HOST: (Profiles, Config) = {
        let nothing = Environment::from([("RDMA_INIT_CONFIG", "/dev/null")]);
        let profiles = Profiles::load(None).expect("the embedded profiles");
        (profiles, config::load(&nothing, Vec::new()).expect("no configuration"))
    };
    static ARENA: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 * 1024]);
}

/// Takes a facts document from the parser to the printed plan.
fn facts_document(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(facts) = Document::parse(text) else { return };
    no_secret(&facts.settings);
    let written = serde_json::to_string(&Document::new(&facts)).expect("facts become JSON");
    assert_eq!(Document::parse(&written).as_ref(), Ok(&facts), "what is written replays");
    HOST.with(|(profiles, config)| {
        let plan = pipeline::decide(&facts, profiles, config);
        let mut out = Vec::new();
        report::plan::write(&mut out, &plan, None, report::plan::Detail::Full).expect("memory");
        report::facts::write(&mut out, &facts).expect("memory");
        printable(&String::from_utf8(out).expect("UTF-8"));
        serde_json::to_string(&report::plan::Document::new(&plan, None)).expect("a plan becomes JSON");
    });
}

/// Asserts that a text from another program cannot control the terminal.
pub(crate) fn printable(text: &str) {
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "{text:?}");
}

fn no_secret(settings: &Settings) {
    for setting in &settings.0 {
        assert_eq!(shown(&setting.variable, &setting.value), setting.value, "{}", setting.variable);
    }
}

/// Checks NCCL's reading of `/etc/nccl.conf`, and the marked block of rdma-init in it.
fn conf_file(data: &[u8]) {
    const OURS: &str = "NCCL_IB_HCA==mlx5_1\nNCCL_IB_GID_INDEX=3\n";
    let text = &String::from_utf8_lossy(data);
    let lines = text.split('\n').count();
    for version in [Version::new(2, 18, 0), Version::new(2, 24, 3), NEWEST] {
        for line in conf::parse(text, version) {
            assert!(line.number <= lines, "{line:?}");
        }
    }
    for line in settings::odd_lines("/etc/nccl.conf", text) {
        assert_eq!(settings::without_secret(line.text.clone()), line.text, "what is cut stays as it is");
    }
    let hidden = block::hidden(text, libraries::may_write);
    assert_eq!(hidden.split('\n').count(), lines, "lines keep their numbers");
    let with = block::with(text, OURS, conf::keys, libraries::may_write);
    assert_eq!(
        block::with(&with, OURS, conf::keys, libraries::may_write),
        with,
        "a second start changes nothing"
    );
    let without = block::with(&with, "", conf::keys, libraries::may_write);
    let own = block::with(text, "", conf::keys, libraries::may_write);
    assert_eq!(without.trim_end_matches('\n'), own.trim_end_matches('\n'), "the user's lines stay");
}

/// Checks vLLM's list of variables with the entries of rdma-init in it.
fn vllm_list(data: &[u8]) {
    const OURS: [&str; 2] = ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"];
    let text = &String::from_utf8_lossy(data);
    let Ok(with) = block::list::with(text, &OURS) else { return };
    let names = block::list::names(&with).unwrap_or_default();
    assert!(OURS.iter().all(|ours| names.iter().any(|name| name == ours)), "{with}");
    assert_eq!(block::list::with(&with, &OURS).ok().as_ref(), Some(&with), "a second start changes nothing");
    assert_eq!(block::list::without(&with).ok(), block::list::without(text).ok(), "the user's entries stay");
}

/// Checks an environment in the form of `/proc/PID/environ`: settings, launchers, and the configuration of
/// rdma-init.
fn environment(data: &[u8]) {
    let entries = data.split(|byte| *byte == 0).filter(|entry| !entry.starts_with(b"RDMA_INIT_CONFIG"));
    let entries: Vec<&[u8]> = [&b"RDMA_INIT_CONFIG=/dev/null"[..]].into_iter().chain(entries).collect();
    let environment = Environment::of_process(&entries.join(&0));
    let filled = copies::of(&environment);
    let environment = environment.without(&filled);
    let start = Start::from(&environment);
    let read =
        settings::read(&Reader::nowhere(), start, None, conf::assignments, libraries::may_write, |_| true);
    no_secret(&read.settings);
    facts::fuzz::launchers(&environment);
    // Without an entry of its own, the configuration is the same for all inputs, and so is a plan without settings.
    if environment.iter().filter(|(name, _)| name.starts_with("RDMA_INIT_")).count() > 1 {
        match config::load(&environment, Vec::new()) {
            Ok(config) => drop(config.plan_options()),
            Err(why) => printable(&why.to_string()),
        }
    }
    if read.settings.0.is_empty() {
        return;
    }
    let facts = Facts { settings: read.settings, ..Facts::default() };
    HOST.with(|(profiles, config)| drop(pipeline::decide(&facts, profiles, config)));
}

/// Checks what a start has saved for processes that enter, for PID 1, and for the env plugin.
fn saved_state(data: &[u8]) {
    if let Ok(run) = state::run::parse(data) {
        let kept = serde_json::to_string(&run).expect("a run becomes JSON");
        assert_eq!(serde_json::from_str::<state::run::Run>(&kept).ok(), Some(run), "what is written replays");
    }
    init::fuzz(data);
    let Some(decision) = answer::Decision::parse(data) else { return };
    let here = answer::Device { name: b"mlx5_1", id: b"b859:0001", pci: b"0000:17:00.0" };
    let present = answer::Present { hcas: Some(&[here]), interfaces: None };
    ARENA.with_borrow_mut(|memory| {
        let mut arena = answer::Arena::new(memory);
        if let Some(settled) = answer::Settled::new(&decision, present, &|_, _| true, &mut arena) {
            for name in [&b"NCCL_IB_HCA"[..], b"NCCL_SOCKET_IFNAME", b"NCCL_IB_TC"] {
                settled.answer(name, Some(b"=mlx5_7"), Some(data));
                settled.answer(name, None, None);
            }
        }
    });
}

/// Checks the messages that nodes send to each other.
fn messages(data: &[u8]) {
    wire::fuzz::connection(data);
    for line in data.split(|byte| *byte == b'\n') {
        preflight::meet::message::fuzz(line);
        watch::job::fuzz(line);
        self_test::pair::fuzz(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    fn corpus() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
    }

    #[test]
    fn each_target_takes_its_kept_inputs() {
        for (name, target) in TARGETS {
            let mut inputs: Vec<_> =
                fs::read_dir(corpus().join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(!inputs.is_empty(), "{name}");
            inputs.sort();
            for input in inputs {
                let bytes = fs::read(&input).unwrap();
                let taken = std::panic::catch_unwind(|| target(&bytes));
                assert!(taken.is_ok(), "{}", input.display());
            }
        }
    }

    #[test]
    fn each_directory_of_inputs_has_a_target() {
        let directories: BTreeSet<String> = fs::read_dir(corpus())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(directories, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
    }
}
