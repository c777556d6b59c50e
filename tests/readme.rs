//! What the README shows is what the program does.

mod support;

use std::process::Command;

use support::{binary, repository};

fn readme() -> String {
    std::fs::read_to_string(repository("README.md")).unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(binary())
        .env_clear()
        .env("RDMA_INIT_CONFIG", "/dev/null")
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_report_is_what_the_program_prints() {
    let report = printed(&["plan", "--facts", "demo:cce-roce"]);
    assert!(readme().contains(&report), "the README lacks this report:\n{report}");
    let why = printed(&["plan", "--facts", "demo:cce-roce", "--why", "NCCL_IB_GID_INDEX"]);
    assert!(readme().contains(&why), "the README lacks this chain:\n{why}");
}

#[test]
fn every_profile_demo_and_key_is_named() {
    let readme = readme();
    let profiles = printed(&["profiles"]);
    let profiles = profiles.lines().filter_map(|line| line.split_whitespace().next());
    for name in profiles.chain(rdma_init::demo::names()).chain(rdma_init::config::KEYS.iter().copied()) {
        assert!(readme.contains(&format!("`{name}`")), "the README does not name {name}");
    }
}

#[test]
fn every_make_target_that_it_names_is_there() {
    let makefile = std::fs::read_to_string(repository("Makefile")).unwrap();
    for (index, _) in readme().match_indices("make ") {
        let readme = readme();
        let target = readme[index + 5..].split(|c: char| !c.is_ascii_lowercase()).next().unwrap();
        let is_code = index > 0 && matches!(readme.as_bytes()[index - 1], b'`' | b'\n');
        if is_code {
            assert!(makefile.contains(&format!("\n{target}:")), "the Makefile has no target {target:?}");
        }
    }
}

#[test]
fn the_example_profile_is_sound() {
    let folder = repository("examples/profile");
    let shown = printed(&["profiles", "site", "--profile-dir", folder.to_str().unwrap()]);
    assert!(shown.contains("NCCL_IB_TC = \"106\""), "{shown}");
}
