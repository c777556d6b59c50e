//! Tests the files that node 0 writes: the document, the page, and the names of the faulty nodes. All of
//! them agree.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::job::{Ended, Job, Node, has_names};
use super::start;

/// Returns options of the command or of a start that write the document, the page, and the list into a
/// directory.
fn options(folder: &Path, names: [&str; 3]) -> Vec<String> {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let files = names.into_iter().zip(["json", "html", "list"]);
    files.flat_map(|(option, name)| [option.to_owned(), path(name)]).collect()
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the document in the page's own data.
fn data(page: &str) -> Value {
    let data = page.split("id=\"data\">").nth(1).expect("data").split("</script>").next().unwrap();
    serde_json::from_str(data).unwrap()
}

/// Expects that nothing in the page refers to another place, and that no browser would load it.
#[track_caller]
fn loads_nothing(page: &str) {
    for word in ["http:", "https:", "src=", "href=", "url(", "@import", "fetch(", "import(", "XMLHttp"] {
        assert!(!page.contains(word), "{word} in the page");
    }
    assert!(page.contains("content=\"default-src 'none';"));
}

/// Returns the pairs of nodes that passed in each round according to the document. Each has its time and
/// its figures.
fn pairs_that_passed(document: &Value) -> Vec<(u64, u64, u64)> {
    let pairs = document["pairs"].as_array().unwrap();
    let passed = pairs.iter().filter(|pair| pair["error"].is_null()).map(|pair| {
        assert!(pair["seconds"].as_f64().unwrap() > 0.0, "{pair}");
        for rail in pair["rails"].as_array().unwrap() {
            assert!(rail["latency_us"].as_f64().unwrap() > 0.0, "{pair}");
            let gbps = rail["gbps"].as_array().unwrap();
            assert!(gbps.len() == 2 && gbps.iter().all(|gbps| gbps.as_f64().unwrap() > 0.0), "{pair}");
        }
        assert_eq!(pair["rails"].as_array().unwrap().len() as u64, document["rails"].as_u64().unwrap());
        let number = |value: &Value| value.as_u64().unwrap();
        (number(&pair["nodes"][0]), number(&pair["nodes"][1]), number(&pair["round"]))
    });
    passed.collect()
}

#[test]
fn the_document_has_every_pair_with_its_times() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::of(4);
    let files = options(folder.path(), ["--json-file", "--html", "--exclude-file"]);
    let mut of_zero: Vec<&str> = files.iter().map(String::as_str).collect();
    of_zero.extend(["--rounds", "full", "--json"]);
    let zero = job.start(0, &of_zero);
    let others: Vec<Node> = (1..4).map(|node| job.start(node, &["--rounds", "full"])).collect();
    let ended = zero.end().expect_code(0);
    // Each pair may take 10 s, and one round may take the maximum time of a round.
    ended.expect("preflight: the nodes try 6 pairs in 3 rounds, which takes 2m 7s at most\n");
    for node in others {
        node.end().expect_code(0);
    }
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document, serde_json::from_str::<Value>(&read(folder.path(), "json")).unwrap());
    assert_eq!((document["passed"].as_bool(), document["reason"].is_null()), (Some(true), true));
    assert_eq!(document["faults"], serde_json::json!([]));
    // With only one interface, there is no other rail to reach.
    assert!(document["cross_rail"].is_null() && document["cross_rail_tries"] == serde_json::json!([]));
    let mut met = pairs_that_passed(&document);
    // On a busy machine, pairs that seem slow are measured again.
    met.retain(|(_, _, round)| *round < 3);
    met.sort_unstable();
    let met: Vec<(u64, u64)> = met.into_iter().map(|(low, high, _)| (low, high)).collect();
    assert_eq!(met, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
    let page = read(folder.path(), "html");
    loads_nothing(&page);
    assert!(page.contains("<span class=\"passed\">passed</span>") && !page.contains("Faults"));
    assert_eq!(data(&page)["marked"], serde_json::json!([]));
    assert_eq!(read(folder.path(), "list"), "");
}

/// Expects that these files name node 3 of four, which was killed in the middle of the preflight.
#[track_caller]
fn name_node_3(folder: &Path, zero: &Ended) {
    let document: Value = serde_json::from_str(&read(folder, "json")).unwrap();
    assert_eq!(document["passed"], false);
    let reason = document["reason"].as_str().unwrap();
    assert!(reason.contains("node3") && zero.said().contains(reason), "{reason:?}, {zero:#?}");
    let faults = document["faults"].as_array().unwrap();
    let [fault] = &faults[..] else { panic!("{faults:#?}") };
    assert_eq!((&fault["kind"], &fault["nodes"]), (&"left".into(), &serde_json::json!([3])));
    assert_eq!(document["exclude"], serde_json::json!(["node3"]));
    // No pair of the other nodes is lost: each of them has tested with both others, with times and figures.
    let mut met = pairs_that_passed(&document);
    met.retain(|(_, high, _)| *high < 3);
    assert!(met.len() >= 2, "{document:#}");
    let page = read(folder, "html");
    loads_nothing(&page);
    assert!(
        page.contains("<h2>Faults</h2>\n<ul>\n<li class=\"fault\">node3 (node 3) disconnected"),
        "{page}"
    );
    assert!(page.contains("<code>node3</code>"));
    let data = data(&page);
    assert_eq!(data["marked"], serde_json::json!([[3, -1]]));
    assert_eq!((&data["gone"], &data["names"][3]), (&serde_json::json!([3]), &"node3".into()));
}

#[test]
fn an_output_that_is_full_costs_neither_the_files_nor_the_code() {
    let folder = tempfile::tempdir().unwrap();
    let files = options(folder.path(), ["--json-file", "--html", "--exclude-file"]);
    std::fs::write(folder.path().join("list"), "of-an-earlier-job\n").unwrap();
    let mut command = Job::of(2).command(0, &["--wait", "1s"]);
    command.args(files).stdout(File::options().write(true).open("/dev/full").unwrap());
    let ended = command.output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("preflight: cannot write the standard output: No space left"), "{said}");
    assert!(said.contains("the list of faulty nodes is empty, because no single node is faulty"), "{said}");
    assert!(read(folder.path(), "html").contains("did not join within 1s"));
    assert_eq!(read(folder.path(), "list"), "");
}

#[test]
fn the_files_name_the_culprit_of_a_step() {
    let files = ["--json-file", "--html", "--exclude-file"];
    files_of_four(files, "--exclude-format", 1, |job, node, options| job.command(node, options));
}

#[test]
fn the_files_name_the_culprit_of_a_start() {
    let files = ["--preflight-json-file", "--preflight-html", "--preflight-exclude-file"];
    files_of_four(files, "--preflight-exclude-format", 121, |job, node, options| {
        start::command(job, node, "enforce", options)
    });
}

/// Kills node 3 of four in the middle, and checks the files that node 0 then writes.
#[track_caller]
fn files_of_four(files: [&str; 3], format: &str, code: i32, command: impl Fn(&Job, u32, &[&str]) -> Command) {
    if !has_names() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let job = Job::of(4);
    let files = options(folder.path(), files);
    let mut of_zero: Vec<&str> = files.iter().map(String::as_str).collect();
    of_zero.extend([format, "slurm", "--log-level", "debug"]);
    let start = |node, options: &[&str]| Node::start(node, job.of_slurm(node, command(&job, node, options)));
    let zero = start(0, &of_zero);
    let others = kill_3(&job, &zero, |node| start(node, &[]));
    let ended = zero.end().expect_code(code);
    for node in others {
        node.end().expect_code(code).expect("node3");
    }
    name_node_3(folder.path(), &ended);
    assert_eq!(read(folder.path(), "list"), "node3\n");
}

/// Starts the other nodes, kills node 3 during its rounds, and returns the remaining ones.
fn kill_3(job: &Job, zero: &Node, start: impl Fn(u32) -> Node) -> Vec<Node> {
    assert_eq!(job.nodes, 4);
    let mut others: Vec<Node> = [1, 3].map(&start).into();
    for node in ["node1", "node3"] {
        zero.wait_for(&format!("{node} has joined"));
    }
    let three = others.remove(1);
    three.signal(Signal::SIGSTOP);
    others.push(start(2));
    zero.wait_for("the rounds have begun");
    three.signal(Signal::SIGKILL);
    assert_eq!(three.end().code, None);
    others
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("missing/page");
    let page = page.to_str().unwrap();
    let why = format!("cannot write {page}: No such file or directory");
    let job = Job::of(2);
    job.start(0, &["--html", page]).end().expect_code(125).expect(&why);
    let start = |mode| {
        Node::start(0, start::command(&job, 0, mode, &["--preflight-html", page, "--preflight-wait", "1s"]))
    };
    let refused = start("enforce").end().expect_code(121);
    refused.expect(&why);
    assert!(!refused.said().contains("did not join"), "{refused:#?}");
    let warned = start("warn").end().expect_code(0);
    warned.expect(&why);
    warned.expect("did not join within 1s");
}
