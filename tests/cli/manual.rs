//! Checks man pages and completions with the programs that read them.

use std::fs;
use std::path::Path;
use std::process::Command;

use rdma_init::cli::ACTIONS;

use super::run::{rdma_init, run};
use crate::support::{binary, repository, skip};

/// Writes the same files as `make manual`, with the program under test.
fn write(folder: &Path) {
    let mut script = Command::new("sh");
    script.arg(repository("tests/manual.sh")).arg(binary()).arg(folder);
    assert!(script.status().unwrap().success());
}

/// Returns what a program says about a file; `None` if there is no such program.
fn said(program: &str, arguments: &[&str], file: &Path) -> Option<(bool, String)> {
    match Command::new(program).args(arguments).arg(file).env_clear().env("PATH", "/usr/bin:/bin").output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(error) => {
            skip(&format!("{program}: {error}"));
            None
        }
    }
}

#[test]
fn every_command_has_a_page_that_a_formatter_takes() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let pages = ACTIONS.iter().map(|action| format!("rdma-init-{action}.1"));
    for page in pages.chain(["rdma-init.1".to_owned()]) {
        // With -z, groff prints no page; with -ww, it prints every warning.
        let Some(said) = said("groff", &["-man", "-Tutf8", "-ww", "-z"], &folder.path().join(&page)) else {
            return;
        };
        assert_eq!(said, (true, String::new()), "{page}");
    }
    let page = fs::read_to_string(folder.path().join("rdma-init.1")).unwrap();
    for text in ["\\-\\-require\\-rdma", "Exit codes: ", "rdma\\-init\\-status(1)"] {
        assert!(page.contains(text), "no {text} in {page}");
    }
    assert!(!folder.path().join("rdma-init-verbs-probe.1").exists());
    let page = fs::read_to_string(folder.path().join("rdma-init-plan.1")).unwrap();
    assert!(page.contains("rdma\\-init plan"), "{page}");
    assert!(page.contains("\\-\\-why"), "{page}");
}

/// Each command's help fits on a screen of 80 columns, with its own options and those that change what it
/// does.
#[test]
fn the_help_of_every_command_fits_on_a_screen() {
    let help = |arguments: &[&str]| run(rdma_init(arguments)).expect_code(0).text().to_owned();
    for action in ACTIONS {
        let text = help(&[action, "--help"]);
        assert!(text.lines().count() <= 40, "{text}\n{action}: {} lines", text.lines().count());
        assert!(text.contains(&format!("Usage: rdma-init {action}")), "{text}");
        assert_eq!(text, help(&[action, "-h"]));
        assert_eq!(text, help(&["help", action]));
    }
    let all = help(&["--help"]);
    assert_eq!(all, help(&["help"]));
    for text in ACTIONS.iter().map(|action| help(&["help", action])).chain([all.clone()]) {
        let long = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{text}");
    }
    let keys = rdma_init::config::names().into_iter();
    for option in keys.filter(|key| !key.starts_with("preflight-")) {
        assert!(all.contains(&format!("      --{option}")), "no --{option} in {all}");
    }
    assert!(!help(&["help", "compare"]).contains("--kill-group"));
    run(rdma_init(["help", "nonsense"]))
        .expect_error(&["help: SUBCOMMAND has the value \"nonsense\": expected one of inspect, plan"]);
}

#[test]
fn shells_take_the_completions() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    for (shell, file) in [("zsh", "_rdma-init"), ("fish", "rdma-init.fish"), ("bash", "rdma-init.bash")] {
        let Some(said) = said(shell, &["-n"], &folder.path().join(file)) else { return };
        assert_eq!(said, (true, String::new()), "{shell}");
    }
    let complete = |words: &str| {
        let script = format!(
            ". \"$0\"; COMP_WORDS=(rdma-init {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _rdma__init rdma-init \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let said = said("bash", &["-c", &script], &folder.path().join("rdma-init.bash")).unwrap();
        assert!(said.0, "{said:?}");
        said.1.trim_end().to_owned()
    };
    assert_eq!(complete("sta"), "status stat");
    assert_eq!(complete("self-test --le"), "--level");
    assert_eq!(complete("env --format n"), "nccl-conf");
}
