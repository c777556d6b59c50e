//! Tests the commands that print: inspect, plan, env.

use std::fs;
use std::path::Path;

use nix::sys::stat::Mode;
use serde_json::Value;

use super::run::{Ran, rdma_init, run, run_with_input};
use crate::support::golden;

fn plan_of(facts: &str) -> Ran {
    run(rdma_init(["plan", "--facts", facts]))
}

fn plan_of_text(text: impl AsRef<[u8]>) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("facts.json");
    fs::write(&path, text).unwrap();
    plan_of(path.to_str().unwrap())
}

#[test]
fn facts_that_cannot_be_used_are_an_error_that_says_why() {
    plan_of("/no/such/file").expect_error(&["/no/such/file", "No such file"]);
    plan_of("/etc").expect_error(&["/etc", "directory"]);
    plan_of("demo:nosuch").expect_error(&["\"nosuch\"", "cce-roce", "infiniband"]);
    plan_of("demo:").expect_error(&["cce-roce"]);
    plan_of("").expect_error(&[]);
    plan_of_text("").expect_error(&["facts.json", "not JSON"]);
    plan_of_text("hello").expect_error(&["facts.json", "not JSON", "line 1"]);
    plan_of_text(b"\"\xff\"").expect_error(&["facts.json", "UTF-8"]);
    plan_of_text("[]").expect_error(&["facts.json", "no \"schema\""]);
    plan_of_text("{}").expect_error(&["facts.json", "no \"schema\""]);
    plan_of_text("{\"schema\": 1}").expect_error(&["facts.json", "schema"]);
    plan_of_text("{\"schema\": \"rdma-init/facts/99\"}")
        .expect_error(&["rdma-init/facts/99", "rdma-init/facts/1"]);
    plan_of_text("{\"schema\": \"rdma-init/facts/1\", \"rdma\": 3}").expect_error(&["not a facts document"]);
    let nested = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    plan_of_text(&nested).expect_error(&["facts.json", "no \"schema\""]);
    let of_rdma = format!("{{\"schema\": \"rdma-init/facts/1\", \"rdma\": {nested}}}");
    plan_of_text(&of_rdma).expect_error(&["facts.json", "not a facts document"]);
    // A list may stand for an HCA with all its defaults, although it is only two bytes long.
    let many = vec!["[]"; 100_000].join(",");
    let of_many = format!("{{\"schema\": \"rdma-init/facts/1\", \"rdma\": [{many}]}}");
    plan_of_text(&of_many).expect_error(&["facts.json", "more than 100000 objects and lists"]);
    // A document without any facts describes an empty host.
    plan_of_text("{\"schema\": \"rdma-init/facts/1\"}").expect_code(0);
}

/// The error about a facts document that is too long does not call it broken.
#[test]
fn facts_that_are_too_long_are_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("facts.json");
    let file = fs::File::create(&path).unwrap();
    file.set_len(200 << 20).unwrap();
    plan_of(path.to_str().unwrap()).expect_error(&["facts.json", "bytes"]);
    plan_of("/dev/zero").expect_error(&["/dev/zero"]);
}

#[test]
fn facts_may_come_from_a_fifo() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("facts.json");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::write(fifo, "{\"schema\": \"rdma-init/facts/1\"}").unwrap()
    });
    plan_of(fifo.to_str().unwrap()).expect_code(0);
    writer.join().unwrap();
}

#[test]
fn facts_may_come_from_standard_input() {
    let ran = run_with_input(rdma_init(["plan", "--facts", "-"]), "nonsense");
    ran.expect_error(&["not JSON"]);
    let ran = run_with_input(rdma_init(["plan", "--facts", "-"]), "{\"schema\": \"rdma-init/facts/1\"}");
    ran.expect_code(0);
}

#[test]
fn every_demo_host_has_a_plan() {
    for host in ["acs-type1", "acs-type2", "cce-roce", "erdma", "gb200", "infiniband", "spark"] {
        let text = plan_of(&format!("demo:{host}")).expect_code(0);
        assert!(text.text().starts_with("rdma-init ") && text.stderr.is_empty(), "{text:#?}");
        let json = run(rdma_init(["plan", "--json", "--facts", &format!("demo:{host}")])).expect_code(0);
        let document: Value = serde_json::from_str(json.text()).unwrap();
        assert_eq!(document["schema"], "rdma-init/plan/1");
    }
}

#[test]
fn inspect_shows_another_host_too() {
    let ran = |arguments: &[&str]| run(rdma_init(arguments)).expect_code(0);
    let shown = ran(&["inspect", "--facts", "demo:cce-roce"]);
    assert!(shown.text().contains("mlx5_8"), "{shown:#?}");
    let document = ran(&["inspect", "--json", "--facts", "demo:cce-roce"]).stdout;
    let of_copy = run_with_input(rdma_init(["plan", "--json", "--facts", "-"]), document).expect_code(0);
    let of_demo = ran(&["plan", "--json", "--facts", "demo:cce-roce"]);
    assert_eq!(of_copy.text(), of_demo.text());
    run(rdma_init(["inspect", "--facts", "/no/such/file"])).expect_error(&["/no/such/file", "No such file"]);
}

#[test]
fn inspect_shows_packages_and_what_vllm_leaves_to_each_node() {
    let shown = |host: &str| {
        let host = golden::facts(host);
        run(rdma_init(["inspect", "--facts", &host])).expect_code(0).text().to_owned()
    };
    let text = shown("mooncake-files-missing");
    let package = "  package mooncake-transfer-engine-non-cuda 0.3.13.post1: /usr/local/lib/python3.12/dist-packages, \
                   not there: mooncake/engine.so and 3 more\n";
    assert!(text.contains(package), "{text}");
    let text = shown("nvshmem-two-wheels");
    assert!(
        text.contains("  NVSHMEM 3.3.9: /usr/lib/x86_64-linux-gnu/nvshmem/12/libnvshmem_host.so.3 ("),
        "{text}"
    );
    let title = "Variables that vLLM leaves to each node, with Ray\n";
    let text = shown("ray-vllm-broken-list");
    assert!(text.contains(title) && text.contains(".json: not a JSON list, so vLLM ignores it\n"), "{text}");
}

#[test]
fn inspect_leaves_out_what_the_kernel_does_not_tell() {
    let host = "tests/cases/image-several-nccls/facts.json";
    let shown = run(rdma_init(["inspect", "--facts", host])).expect_code(0);
    let text = shown.text();
    assert!(text.contains("  mlx5_1: driver mlx5_core, node type 1: CA, uverbs1 opened\n"), "{text}");
    assert!(
        text.contains("    port 1: InfiniBand, ACTIVE, 400 Gb/sec (4X NDR), 1 of 8 GID entries used\n"),
        "{text}"
    );
}

#[test]
fn what_inspect_writes_plan_reads() {
    let with_settings = |arguments: &[&str]| {
        let mut command = rdma_init(arguments);
        command.env("NCCL_DEBUG", "INFO").env("NCCL_IB_HCA", "=nosuch_9").env("NCCL_ODD", "a\"b\\c\n\u{7f}");
        run(command).expect_code(0).text().to_owned()
    };
    let facts = with_settings(&["inspect", "--json"]);
    let document: Value = serde_json::from_str(&facts).unwrap();
    assert_eq!(document["schema"], "rdma-init/facts/1");
    let live = with_settings(&["plan", "--json"]);
    let replayed = |facts: &str| {
        run_with_input(rdma_init(["plan", "--json", "--facts", "-"]), facts).expect_code(0).text().to_owned()
    };
    assert_eq!(replayed(&facts), live);
    // Fields that this version does not know are ignored.
    let mut more = document;
    more["a-field-of-tomorrow"] = Value::from(1);
    assert_eq!(replayed(&more.to_string()), live);
    assert!(!with_settings(&["inspect"]).is_empty());
}

/// `inspect` reports whether a file that a variable names exists. A FIFO in its place does not make it hang.
#[test]
fn files_that_variables_name_are_looked_for_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let with = |topology: &Path, arguments: &[&str], input: &str| {
        let mut command = rdma_init(arguments);
        command.env("NCCL_TOPO_FILE", topology).env("NCCL_GRAPH_FILE", "graph.xml").current_dir(&folder);
        run_with_input(command, input).expect_code(0).text().to_owned()
    };
    let missing = folder.path().join("topo.xml");
    let text = with(&missing, &["plan"], "");
    let said =
        format!("NCCL_TOPO_FILE={} (environment): the file cannot be opened: ENOENT", missing.display());
    assert!(text.contains(&format!("warning: {said}")), "{text}");
    assert!(text.contains("error: NCCL_GRAPH_FILE=graph.xml (environment): the file cannot be"), "{text}");
    fs::write(folder.path().join("graph.xml"), "secret").unwrap();
    let facts = with(&fifo, &["inspect", "--json"], "");
    let document: Value = serde_json::from_str(&facts).unwrap();
    let there = |path: &str| serde_json::json!({"path": path, "error": null});
    let files = document["named_files"].as_array().unwrap();
    assert!(
        files.contains(&there("graph.xml")) && files.contains(&there(fifo.to_str().unwrap())),
        "{files:?}"
    );
    assert!(!facts.contains("secret"));
    let mut command = rdma_init(["plan"]);
    command.env("NCCL_GRAPH_FILE", "");
    let empty = run(command).expect_code(0);
    assert!(empty.text().contains("error: NCCL_GRAPH_FILE is set but empty (environment)"), "{empty:#?}");
    // It is unknown whether another machine's files exist.
    let text = with(&missing, &["plan", "--facts", "-"], &facts);
    assert!(!text.contains("cannot be opened"), "{text}");
}

/// A variable may be set in several places: in the captured environment, in the present one,
/// and in a file.
#[test]
fn a_case_comes_out_as_it_was_captured_and_a_setting_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("nccl.conf");
    fs::write(&conf, "NCCL_DEBUG=FILE\n").unwrap();
    let with_setting = |arguments: &[&str], value: &str, input: &str| {
        let mut command = rdma_init(arguments);
        command.env("NCCL_DEBUG", value).env("NCCL_CONF_FILE", &conf);
        let ran = run_with_input(command, input).expect_code(0);
        let text = ran.text().to_owned();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" NCCL_DEBUG ")).collect();
        (lines.join("\n"), text, ran.stderr)
    };
    let (_, facts, _) = with_setting(&["inspect", "--json"], "THERE", "");
    let (line, _, said) = with_setting(&["plan", "--facts", "-"], "HERE", &facts);
    assert!(line.lines().count() == 1 && line.contains("THERE"), "{line}");
    assert!(
        said.contains("variables of this shell do not count for the captured host: NCCL_DEBUG."),
        "{said}"
    );
    let (line, _, said) = with_setting(&["plan", "--facts", "-"], "THERE", &facts);
    assert!(line.contains("THERE") && said.is_empty(), "{line}{said}");
    // A flag of this shell counts.
    let (line, _, _) = with_setting(&["plan", "--set", "NCCL_DEBUG=FLAG", "--facts", "-"], "HERE", &facts);
    assert!(line.lines().count() == 1 && line.contains("FLAG"), "{line}");
    // A document that is not a whole case, such as an older one, takes the variables from here.
    let mut older: Value = serde_json::from_str(&facts).unwrap();
    older.as_object_mut().unwrap().remove("configuration").unwrap();
    let (line, _, said) = with_setting(&["plan", "--facts", "-"], "HERE", &older.to_string());
    assert!(line.lines().count() == 1 && line.contains("HERE"), "{line}");
    assert!(
        said.contains("variables of this shell count for the captured host, over its own: NCCL_DEBUG."),
        "{said}"
    );
}

/// The keys on which a decision depends travel with the facts, and secrets do not.
#[test]
fn a_case_has_the_keys_of_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let [there, here] = ["there.toml", "here.toml"].map(|name| folder.path().join(name));
    let text = "keep = [\"NCCL_IB_TC\"]\nstop-timeout = \"9s\"\ndefault-route-hca = \"use\"\n[set]\nT_A = \"captured\"\nT_API_KEY = \"hunter2\"\n";
    fs::write(&there, text).unwrap();
    fs::write(&here, "keep = [\"NCCL_IB_SL\"]\ninstance-type = \"x.y\"\n[set]\nT_B = \"here\"\n").unwrap();
    let with = |config: &Path, arguments: &[&str], input: &str| {
        let mut command = rdma_init(arguments);
        command
            .env("RDMA_INIT_CONFIG", config)
            .env("RDMA_INIT_TOKEN", "hunter3")
            .env("RDMA_INIT_PROFILE", "none");
        run_with_input(command, input).expect_code(0).text().to_owned()
    };
    let facts = with(&there, &["inspect", "--json"], "");
    assert!(!facts.contains("hunter"), "{facts}");
    let document: Value = serde_json::from_str(&facts).unwrap();
    let wanted = serde_json::json!({
        "default-route-hca": "use",
        "keep": ["NCCL_IB_TC"],
        "profile": "none",
        "set": {"T_A": "captured", "T_API_KEY": "(not shown)"},
    });
    assert_eq!(document["configuration"], wanted);
    let env = |flags: &[&str]| {
        with(&here, &[&["env", "--format", "docker", "--facts", "-"], flags].concat(), &facts)
    };
    assert_eq!(env(&[]), "T_A=captured\nT_API_KEY=(not shown)\n");
    assert_eq!(env(&["--set", "T_A=flag"]), "T_A=flag\nT_API_KEY=(not shown)\n");
    let plan = |flags: &[&str]| with(&here, &[&["plan", "--facts", "-"], flags].concat(), &facts);
    assert!(plan(&[]).contains("NCCL_IB_TC") && !plan(&[]).contains("NCCL_IB_SL"), "{}", plan(&[]));
    assert!(!plan(&["--keep", "NCCL_ALGO"]).contains("NCCL_IB_TC"));
    let mut wrong = document;
    wrong["configuration"]["profile"] = Value::from("nosuch");
    let ran = run_with_input(rdma_init(["plan", "--facts", "-"]), wrong.to_string());
    ran.expect_error(&["nosuch", "the facts document"]);
}

/// Names and values that need care in one format or another.
const ODD: &[(&str, &str)] = &[
    ("T_QUOTES", "it's \"so\""),
    ("T_LINES", "a\nb\n\n"),
    ("T_DOLLAR", "$HOME ${PATH} $(echo x) `echo y`"),
    ("T_BACKSLASH", "\\ \\\\n \\' \\"),
    ("T_SPACES", "  two  "),
    ("T_GLOB", "* ? [a-z] ~ {a,b}"),
    ("T_SHELL", "; exit 9 & | > < ! # ("),
    ("T_HISTORY", "!! ^a^b"),
    ("T_TILDE", "~/x:~root"),
    ("T_EMPTY", ""),
    ("T_EQUALS", "=mlx5_1,mlx5_2"),
    ("T_UNICODE", "ü\u{85}\u{2028}\u{1f600}"),
    ("T_CONTROL", "\t\u{1b}[31m\u{7f}"),
    ("T_RETURN", "a\r\nb\r"),
    ("T_PERCENT", "%s%n %%"),
    ("T_DASH", "-n"),
];

fn env(format: &str) -> Ran {
    let mut command = rdma_init(["env", "--facts", "demo:infiniband", "--format", format]);
    command.args(ODD.iter().flat_map(|(name, value)| ["--set".to_owned(), format!("{name}={value}")]));
    run(command)
}

fn after_eval(shell: &Path, text: &str) -> Vec<(String, String)> {
    let mut command = std::process::Command::new(shell);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/root").env("LC_ALL", "C.UTF-8");
    // fish needs other arguments.
    command.env("TEXT", text).args(["-c", "eval \"$TEXT\" && exec env -0"]);
    let ran = run(command).expect_code(0);
    let entries = ran.text().split_terminator('\0').map(|entry| entry.split_once('=').unwrap());
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_shell_format_survives_eval() {
    let written = env("sh").expect_code(0);
    for shell in ["/bin/dash", "/bin/bash", "/bin/zsh", "/usr/bin/fish"] {
        let shell = Path::new(shell);
        if !shell.exists() {
            crate::support::skip(&format!("there is no {}", shell.display()));
            continue;
        }
        let found = after_eval(shell, written.text());
        // fish's `export` splits a value at line breaks.
        let is_fish = shell.ends_with("fish");
        for (name, value) in ODD.iter().filter(|(_, value)| !(is_fish && value.contains('\n'))) {
            let entry = found.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
            assert_eq!(entry, Some(*value), "{name} in {}", shell.display());
        }
    }
    // Without quotes around `$(...)`, the values are wrong, but no word runs as a command.
    assert!(written.text().lines().next().is_some_and(|line| line.starts_with("export ")));
}

/// A name that a shell does not accept must not run as a program there.
#[test]
fn the_shell_format_holds_no_name_that_a_shell_would_run() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("ran");
    let name = format!("A;touch {};B", mark.display());
    let mut command = rdma_init(["env", "--facts", "demo:infiniband", "--format", "sh", "--set"]);
    command.arg(format!("{name}=1"));
    let ran = run(command);
    if ran.code == Some(0) {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "eval \"$1\"", "sh", ran.text()]);
        run(shell);
    }
    assert!(!mark.exists(), "{ran:#?}");
}

#[test]
fn json_holds_every_value() {
    let ran = env("json").expect_code(0);
    let found: Value = serde_json::from_str(ran.text()).unwrap();
    for (name, value) in ODD {
        assert_eq!(found[name], *value, "{name}");
    }
}

#[test]
fn formats_of_lines_leave_out_what_they_cannot_hold_and_say_so() {
    for format in ["docker", "nccl-conf"] {
        let ran = env(format).expect_code(1);
        for (name, value) in ODD {
            let line = format!("{name}={value}\n");
            let left_out = value.contains(['\n', '\r']);
            assert_eq!(ran.text().contains(&line), !left_out, "{format} {name}: {ran:#?}");
            assert_eq!(ran.stderr.contains(name), left_out, "{format} {name}: {ran:#?}");
        }
    }
}

/// People use this format without an eval. Every value in it arrives unchanged, because values that a shell
/// would change are omitted.
#[test]
fn mpirun_gets_the_values_from_a_shell_that_splits() {
    if !Path::new("/usr/bin/mpirun").exists() {
        return crate::support::skip("there is no mpirun (Debian's openmpi-bin)");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("-x"), "").unwrap();
    let more = [("T_LIST", "^=mlx5_1,mlx5_2:1"), ("T_PATH", "/a.b-c:/d+e@%f"), ("T_LAST", "1")];
    let all: Vec<(&str, &str)> = ODD.iter().chain(&more).copied().collect();
    for shell in ["dash", "bash", "zsh"] {
        let mut command = rdma_init(["env", "--facts", "demo:infiniband", "--format", "mpirun"]);
        command.args(all.iter().flat_map(|(name, value)| ["--set".to_owned(), format!("{name}={value}")]));
        let program = command.get_program().to_owned();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut command = std::process::Command::new(shell);
        let script = r#"cd "$FOLDER" && mpirun --allow-run-as-root -np 1 $("$0" "$@") env -0"#;
        command.arg("-c").arg(script).arg(program).args(arguments);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", folder.path())
            .env("FOLDER", folder.path());
        command.env("RDMA_INIT_CONFIG", "/dev/null");
        let ran = run(command).expect_code(0);
        let arrived: Vec<&str> = ran.text().split('\0').collect();
        for (name, value) in &all {
            let entry = format!("{name}={value}");
            let is_plain = value.chars().all(|c| c.is_ascii_alphanumeric() || "_-.,/:+@%=^".contains(c));
            assert_eq!(arrived.contains(&&*entry), is_plain, "{shell}: {entry:?} in {ran:#?}");
            let is_said = ran.stderr.contains(&format!("{name} (its value has white space"));
            assert_eq!(is_said, !is_plain, "{shell}: {name} in {ran:#?}");
        }
    }
}

#[test]
fn dotenv_quotes_what_readers_would_expand() {
    let ran = env("dotenv").expect_code(1);
    let text = ran.text();
    assert!(text.contains("T_LINES=\"a\\nb\\n\\n\"\n"), "{text}");
    assert!(text.contains("T_SPACES=\"  two  \"\n"), "{text}");
    for name in ["T_DOLLAR", "T_QUOTES", "T_BACKSLASH", "T_CONTROL"] {
        assert!(!text.contains(name) && ran.stderr.contains(&format!("{name} (its value has ")), "{ran:#?}");
    }
}

#[test]
fn an_unknown_format_is_an_error_that_lists_them() {
    run(rdma_init(["env", "--format", "yaml"])).expect_error(&["yaml", "dotenv", "nccl-conf", "mpirun"]);
}

/// Another user may have written a document. Nothing in it may run here, or look like one of the program's
/// own lines.
#[test]
fn a_hostile_document_does_no_harm() {
    let settings = r#"[{"variable": "NCCL_X;touch pwned;", "value": "1", "origin": "configuration"},
        {"variable": "NCCL_A}$(touch pwned)", "value": "1", "origin": "environment"},
        {"variable": "NCCL_B\nPermitRootLogin yes", "value": "1", "origin": "/etc/nccl.conf:1"},
        {"variable": "NCCL_X_TOKEN", "value": "hunter2", "origin": "environment"},
        {"variable": "NCCL_IB_HCA", "value": "a\n  error: forged\u001b]0;b\u0007", "origin": "environment"}]"#;
    let folder = tempfile::tempdir().unwrap();
    let facts = folder.path().join("facts.json");
    fs::write(&facts, format!(r#"{{"schema": "rdma-init/facts/1", "settings": {settings}}}"#)).unwrap();
    let facts = facts.to_str().unwrap();

    for all in [&[][..], &["--all"]] {
        for format in ["sh", "dotenv", "nccl-conf", "docker", "mpirun", "json"] {
            let ran = run(rdma_init([&["env", "--facts", facts, "--format", format], all].concat()));
            let lines = ran.text().lines().filter(|line| !line.contains("NCCL_IB_HCA"));
            let text: String = lines.collect();
            assert!(!text.contains("touch") && !text.contains("Permit"), "{format}: {ran:#?}");
            assert!(!text.contains("hunter2") && !ran.stderr.contains("hunter2"), "{format}: {ran:#?}");
        }
    }
    let ran = run(rdma_init(["plan", "--facts", facts])).expect_code(0);
    assert!(!ran.text().contains('\u{1b}') && !ran.text().contains("hunter2"), "{ran:#?}");
    assert!(!ran.text().lines().any(|line| line.starts_with("Permit")), "{ran:#?}");
    assert!(!ran.text().lines().any(|line| line.trim_start().starts_with("error: forged")), "{ran:#?}");
}

/// A table with the largest possible size must not keep the program busy for minutes.
#[test]
fn absurd_sizes_are_no_hang() {
    let demo = include_str!("../../src/demo/cce-roce.json");
    // The indexes differ between HCAs, so that the search is replayed.
    let shifted = demo.replacen("\"index\": 3", "\"index\": 7", 1);
    let absurd = shifted.replace("\"size\": 255", "\"size\": 4294967295");
    assert_ne!(absurd, shifted);
    plan_of_text(absurd).expect_code(0);
}

#[test]
fn every_shell_takes_the_variables() {
    let script = "eval \"$($0 env --facts demo:cce-roce)\"; echo $NCCL_IB_HCA $NCCL_IB_GID_INDEX";
    for shell in ["sh", "bash", "zsh"] {
        let mut command = std::process::Command::new(shell);
        // This variable belongs to the tests; the program would not know such a key.
        command.env_remove("RDMA_INIT_TEST_BINARY");
        let Ok(shown) = command.args(["-c", script]).arg(crate::support::binary()).output() else {
            crate::support::skip(&format!("there is no {shell}"));
            continue;
        };
        let hcas: Vec<String> = (1..=8).map(|number| format!("mlx5_{number}")).collect();
        let text = String::from_utf8(shown.stdout).unwrap();
        assert_eq!(text, format!("={} 3\n", hcas.join(",")), "{shell}");
    }
}
