//! Tests that the output in README and manual is what the program prints.

use rdma_init::cli;

use super::{markdown, page, printed, without_code};
use crate::support::repository;

#[test]
fn the_readme_has_the_report() {
    let report = printed(&["plan", "--facts", "demo:cce-roce"]);
    assert!(page("README.md").contains(&report), "the README lacks this report:\n{report}");
}

/// Runs every block of the form `$ rdma-init ... --facts demo:NAME ...`.
#[test]
fn what_a_page_shows_of_a_demo_is_what_the_program_prints() {
    let mut shown = 0;
    for path in markdown() {
        let text = page(path.to_str().unwrap());
        for block in text.split("\n```text\n$ rdma-init ").skip(1) {
            let block = block.split("```").next().unwrap();
            let (arguments, output) = block.split_once('\n').unwrap();
            if !arguments.contains("--facts demo:") {
                continue;
            }
            let arguments: Vec<&str> = arguments.split_whitespace().collect();
            assert_eq!(timeless(output), timeless(&printed(&arguments)), "{}: {arguments:?}", path.display());
            shown += 1;
        }
    }
    assert!(shown >= 2, "{shown}");
}

/// Returns the text without the times that tests took, and without the spaces before them.
fn timeless(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_time = |at: usize| {
            words.get(at + 1).is_some_and(|unit| ["us", "us)", "ms", "ms)"].contains(unit))
                && words[at].bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        };
        let kept: Vec<&str> =
            words.iter().enumerate().map(|(at, word)| if is_time(at) { "TIME" } else { word }).collect();
        kept.join(" ").replace("TIME ms", "TIME us")
    };
    text.lines().map(line).collect()
}

/// Parses the commands that the page gives for a symptom. A start's own command is not in the parser.
#[test]
fn the_program_accepts_each_command_for_a_symptom() {
    let prose = without_code(&page("docs/troubleshooting.md"));
    let commands = prose.split('`').skip(1).step_by(2).filter(|code| code.starts_with("rdma-init "));
    let mut accepted = 0;
    for command in commands {
        let ends = if command.starts_with("rdma-init --") { "--" } else { ">" };
        let words = command.split_whitespace().take_while(|word| *word != ends);
        let words = words.map(|word| if word == "PID" { "1" } else { word });
        let parsed = cli::command().try_get_matches_from(words);
        assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
        accepted += 1;
    }
    assert!(accepted >= 12, "{accepted}");
}

#[test]
fn every_make_target_that_a_page_names_is_there() {
    let makefile = page("Makefile");
    let mut named = 0;
    for path in markdown() {
        let text = page(path.to_str().unwrap());
        for (index, _) in text.match_indices("make ") {
            let is_code = index > 0 && matches!(text.as_bytes()[index - 1], b'`' | b'\n');
            let rest = &text[index + 5..];
            let target = rest
                .split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()) && c != '-')
                .next()
                .unwrap();
            if is_code && !target.is_empty() {
                assert!(makefile.contains(&format!("\n{target}:")), "{}: make {target}", path.display());
                named += 1;
            }
        }
    }
    assert!(named > 5, "{named}");
}

/// Readers do not finish a page that is too long.
#[test]
fn the_readme_is_short() {
    let words = page("README.md").split_whitespace().count();
    assert!(words <= 1500, "the README has {words} words; its place for more is docs/");
}

#[test]
fn the_example_profile_is_sound_and_shown_as_it_is() {
    let folder = repository("examples/profile");
    let profile = printed(&["profiles", "site", "--profile-dir", folder.to_str().unwrap()]);
    assert!(profile.contains("NCCL_IB_TC = \"106\""), "{profile}");
    let file = page("examples/profile/site.toml");
    assert!(page("docs/configuration.md").contains(&file), "docs/configuration.md shows another profile");
}
