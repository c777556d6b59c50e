//! Tests `profiles`: the list, what it shows, and why a profile was chosen.

use std::fs;

use nix::sys::stat::Mode;
use serde_json::Value;

use super::run::{rdma_init, run};
use crate::support::{golden, repository};

#[test]
fn profiles_say_which_conditions_hold() {
    let why = run(rdma_init(["profiles", "--why", "--facts", "demo:cce-roce"])).expect_code(0);
    let text = why.text();
    assert!(
        text.starts_with("generic-roce (priority -10): chosen\n  if link-layer = \"Ethernet\": yes: "),
        "{text}"
    );
    assert!(text.contains("\nacs-type1 (priority 10): does not fit\n  if hca = "), "{text}");
    assert!(text.contains("\n     interface = \"hpn0\": no\n"), "{text}");
    assert!(text.contains("\nibm-h100 (priority 0): chosen by name only\n"), "{text}");
    let folder = repository("tests/cases/profiles-of-equal-priority/profiles");
    let host = golden::facts("profiles-of-equal-priority");
    let of_own = ["--profile-dir", folder.to_str().unwrap(), "profiles", "--why", "--facts", &host];
    let why = run(rdma_init(of_own)).expect_code(0);
    let equals =
        "\nhall-west (priority 30): fits, but hall-east has the same priority, and comes first by name\n";
    let only = "\n  only NCCL_IB_TIMEOUT = \"23\"\n    if nccl-min = \"2.26\": no\n";
    let lower = "\ngeneric-roce (priority -10): fits, but hall-east has a higher priority\n";
    for part in [equals, only, lower] {
        assert!(why.text().contains(part), "{part} {}", why.text());
    }
    let mut command = rdma_init(of_own);
    command.env("RDMA_INIT_PROFILE", "generic-roce");
    let named = run(command).expect_code(0);
    let named = named.text();
    assert!(
        named.contains("hall-east (priority 30): fits, but the configuration names generic-roce\n"),
        "{named}"
    );
    let folder = repository("tests/cases/platform-variable-out-of-range/profiles");
    let host = golden::facts("platform-variable-out-of-range");
    let of_platform = |environment: &[(&str, &str)]| {
        let of_own = ["--profile-dir", folder.to_str().unwrap(), "profiles", "--why", "--facts", &host];
        let mut command = rdma_init(of_own);
        command.envs(environment.iter().copied());
        run(command).expect_code(0).text().to_owned()
    };
    let text = of_platform(&[("HALL_TC", "300"), ("HALL_SL", "3"), ("MLP_SOCKET_IFNAME", "eth1")]);
    for line in [
        "  NCCL_IB_TC from HALL_TC=300: no: the value is out of range: it can be -1 to 255",
        "  NCCL_IB_SL from HALL_SL=3: yes: in its range, -1 to 15",
        "  NCCL_SOCKET_IFNAME from MLP_SOCKET_IFNAME=eth1: yes: any text is possible\n",
    ] {
        assert!(text.contains(line), "{line} {text}");
    }
    let text = of_platform(&[("HALL_TC", " ")]);
    for line in ["  NCCL_IB_TC from HALL_TC: not set here\n", "  NCCL_IB_SL from HALL_SL: not set here\n"] {
        assert!(text.contains(line), "{line} {text}");
    }
    run(rdma_init(["profiles", "--why", "--json"])).expect_error(&["--why"]);
    run(rdma_init(["profiles", "--facts", "demo:cce-roce"])).expect_error(&["--facts only with --why"]);
}

#[test]
fn the_reasons_of_named_profiles_alone_are_shown() {
    let why = |names: &[&str]| {
        let mut command = rdma_init(["profiles", "--why", "--facts", "demo:cce-roce"]);
        command.args(names);
        run(command)
    };
    let ran = why(&["erdma", "acs-type1"]).expect_code(0);
    let heads: Vec<&str> = ran.text().lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(heads.len(), 2, "{heads:?}");
    for name in ["erdma", "acs-type1"] {
        assert!(heads.iter().any(|head| head.starts_with(&format!("{name} (priority "))), "{heads:?}");
    }
    why(&["erdma", "nosuch"]).expect_error(&["\"nosuch\"", "generic-ib"]);
    let shown = run(rdma_init(["profiles", "erdma", "pai-erdma"])).expect_code(0);
    for name in ["erdma", "pai-erdma"] {
        assert!(shown.text().contains(&format!("name = \"{name}\"\n")), "{}", shown.text());
    }
}

#[test]
fn what_an_unwanted_condition_finds_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n\
        [[only]]\nif = { no-hca = true }\nvariables = { NCCL_IB_HCA = \"=mlx5_1\", TZ = \"UTC\" }\n\
        [[auto]]\nhca-name = \"mlx5_1\"\nnot = [\n\
        { interface = \"eth*\" },\n{ interface = \"eth0\", no-hca = true },\n{ interface = \"ib9\" },\n\
        { interface = \"eth0\", not = [{ no-hca = true }] },\n{ environment = \"OUR_LAB\" }]\n\
        [[auto]]\nfile = \"/etc/our-site\"\n[[auto]]\nenvironment = \"OUR_SITE\"\n[[auto]]\nenvironment = \"SLURM_X\"\n";
    fs::write(folder.path().join("site.toml"), text).unwrap();
    let flags = ["--profile-dir", folder.path().to_str().unwrap(), "profiles", "--why", "site"];
    let mut command = rdma_init(flags);
    command.args(["--facts", "demo:cce-roce"]);
    let captured = run(command).expect_code(0);
    let unasked = "the facts were captured without this profile (inspect --json --profile-dir DIR)";
    for line in [
        "  only NCCL_IB_HCA = \"=mlx5_1\", TZ = \"UTC\"",
        "     not = [{ interface = \"eth*\" }]: no: interface eth0",
        "     not = [{ no-hca = true, interface = \"eth0\" }]: yes: without no-hca = true",
        "     not = [{ interface = \"ib9\" }]: yes",
        "     not = [{ interface = \"eth0\", not = [{ no-hca = true }] }]: no: interface eth0, not = [{ no-hca = true }] holds",
        &format!("     not = [{{ environment = \"OUR_LAB\" }}]: yes, unless {unasked}"),
        &format!("  or file = \"/etc/our-site\": no, or {unasked}"),
        &format!("  or environment = \"OUR_SITE\": no, or {unasked}"),
        "  or environment = \"SLURM_X\": no",
    ] {
        assert!(captured.text().lines().any(|shown| shown == line), "{line}\n{}", captured.text());
    }
    let here = run(rdma_init(flags)).expect_code(0);
    assert!(here.text().contains("  or file = \"/etc/our-site\": no\n"), "{}", here.text());
}

#[test]
fn a_name_with_control_characters_is_not_printed_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = "name = \"a\\u001b[31mX\"\ntitle = \"t\"\nsource = \"s\"\n";
    fs::write(folder.path().join("site.toml"), text).unwrap();
    let flags = ["--profile-dir", folder.path().to_str().unwrap()];
    for rest in [&["profiles", "nosuch"][..], &["--profile", "nosuch", "plan", "--facts", "demo:cce-roce"]] {
        let ran = run(rdma_init(flags.iter().chain(rest))).expect_error(&["nosuch", "a\u{fffd}[31mX"]);
        assert!(!ran.stderr.contains('\u{1b}'), "{ran:#?}");
    }
}

#[test]
fn profiles_are_listed_and_shown() {
    let list = run(rdma_init(["profiles"])).expect_code(0);
    for line in list.text().lines() {
        let (name, title) = line.split_once(' ').unwrap();
        assert!(!title.trim().is_empty(), "{line}");
        let shown = run(rdma_init(["profiles", name])).expect_code(0);
        assert!(shown.text().contains(&format!("name = \"{name}\"")), "{shown:#?}");
        let json = run(rdma_init(["profiles", name, "--json"])).expect_code(0);
        assert_eq!(serde_json::from_str::<Value>(json.text()).unwrap()["profiles"][0]["name"], name);
    }
    let all = run(rdma_init(["profiles", "--json"])).expect_code(0);
    let all: Value = serde_json::from_str(all.text()).unwrap();
    assert_eq!(all["schema"], "rdma-init/profiles/1");
    assert_eq!(all["profiles"].as_array().unwrap().len(), list.text().lines().count());
    run(rdma_init(["profiles", "nosuch"])).expect_error(&["\"nosuch\"", "generic-ib", "erdma"]);
}

#[test]
fn a_profile_that_is_shown_can_be_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let shown = run(rdma_init(["profiles", "pai-erdma"])).expect_code(0);
    fs::write(folder.path().join("copy.toml"), shown.text().replace("\"pai-erdma\"", "\"copy\"")).unwrap();
    let with_folder = |name: &str| {
        run(rdma_init(["--profile-dir", folder.path().to_str().unwrap(), "profiles", name])).expect_code(0)
    };
    assert_eq!(with_folder("copy").text().replace("\"copy\"", "\"pai-erdma\""), shown.text());
}

#[test]
fn a_folder_without_a_profile_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("site.toml.bak"), "no profile").unwrap();
    let flags = ["--profile-dir", folder.path().to_str().unwrap()];
    let says = |arguments: &[&str]| {
        let ran = run(rdma_init(flags.iter().chain(arguments))).expect_code(0);
        let count = ran.stderr.matches("(profile-dir) contains no profile").count();
        assert_eq!(count, 1, "{arguments:?} {ran:#?}");
    };
    says(&["profiles"]);
    says(&["plan", "--facts", "demo:cce-roce"]);
    says(&["--", "true"]);
    fs::write(folder.path().join("site.toml"), "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n").unwrap();
    let ran = run(rdma_init(flags.iter().chain(&["profiles"]))).expect_code(0);
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_broken_profile_is_named_with_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    let load = |text: &str| {
        fs::write(&path, format!("name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n{text}")).unwrap();
        let flags = ["--profile-dir", folder.path().to_str().unwrap()];
        let printed = run(rdma_init(flags.iter().chain(&["profiles"]))).expect_code(125);
        // A start fails with the same error, because a user's own profile is part of the configuration.
        let ran = run(rdma_init(flags.iter().chain(&["--", "true"])));
        assert_eq!(ran.expect_code(125).stderr, printed.stderr);
        printed
    };
    load("colour = 1").expect_error(&["site.toml:4", "colour"]);
    load("priority = \"high\"").expect_error(&["site.toml:4", "priority"]);
    load("[variables]\nNCCL_IB_TC = 106").expect_error(&["site.toml:5", "NCCL_IB_TC"]);
    load("[[auto]]\nhcas = 1").expect_error(&["site.toml:5", "hcas"]);
    load("[variables").expect_error(&["site.toml:4", "key \"variables\""]);
    load("[constraints.nics]\necs.foo = 3").expect_error(&[
        "site.toml:5",
        "key \"ecs\"",
        "write \"ecs.foo\"",
    ]);
    load("[variables]\nNCCL_IB_TC").expect_error(&["site.toml:5", "key \"NCCL_IB_TC\"", "no value"]);
    load("title = \"again\"").expect_error(&["site.toml:4", "key \"title\"", "second time"]);
    load("extends = \"nobody\"").expect_error(&["site", "extends", "nobody"]);
    load("extends = \"site\"").expect_error(&["extends itself"]);
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    run(rdma_init(["--profile-dir", folder.path().to_str().unwrap(), "--", "true"]))
        .expect_error(&["site.toml", "not a regular file"]);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("site.toml", &path).unwrap();
    run(rdma_init(["--profile-dir", folder.path().to_str().unwrap(), "--", "true"]))
        .expect_error(&["site.toml"]);
}
