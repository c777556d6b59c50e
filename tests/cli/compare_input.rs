//! Tests what `compare` reads: reports in files, folders, and among other lines.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::compare::{compare, compare_json, differing, in_order, lines, report};
use super::run::{Ran, rdma_init, run};

#[test]
fn what_others_put_around_a_report_is_passed_over() {
    let reports: Vec<String> = (1..=3).map(|number| report(&format!("n{number}")).to_string()).collect();
    let input = format!(
        "[1,0]<stderr>:rdma-init 0.1.0: RoCE {{8 of 9}}\n[1,0]<stdout>:{}\n2026-11-21T09:00:00.1Z {}\r\n{{\"other\": 1}}\n[pod/a{{b}}] {} done\n",
        reports[0], reports[1], reports[2]
    );
    let ran = compare(input).expect_code(0);
    assert!(ran.text().contains(": 3 nodes: all agree"), "{ran:#?}");
    assert!(differing(&ran).is_empty(), "{ran:#?}");
    // This line contains several reports, each with the schema first.
    let in_order = |report: &String| {
        let report = in_order(serde_json::from_str(report).unwrap());
        serde_json::to_string(&report).unwrap()
    };
    let reports: Vec<String> = reports.iter().take(2).map(in_order).chain(reports.last().cloned()).collect();
    let ran = compare(format!("[{{\"a\"}}] {}\n", reports.concat())).expect_code(0);
    assert!(ran.text().contains(": 3 nodes: all agree"), "{ran:#?}");
    let ran = compare(reports.concat()).expect_code(0);
    assert!(ran.text().contains(": 3 nodes: all agree"), "{ran:#?}");
}

/// The first report's keys are sorted, as by jq -S, because serde_json writes a value that way.
#[test]
fn reports_may_be_spread_over_lines() {
    let one = serde_json::to_string_pretty(&report("node001")).unwrap();
    let two = serde_json::to_string_pretty(&in_order(report("node002"))).unwrap();
    let ran = compare(format!("a log\n{one}\n{two}\nmore\n")).expect_code(0);
    assert!(ran.text().contains(": 2 nodes: all agree"), "{ran:#?}");
    // The first report is cut before it identifies itself as one.
    let ran = compare(format!("{}\n{two}\n", &one[..one.len() / 2])).expect_code(0);
    assert!(ran.text().contains(": 1 node: there is no other to compare it with"), "{ran:#?}");
}

#[test]
fn a_folder_means_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
    write("node1.json", serde_json::to_string_pretty(&report("node1")).unwrap().as_bytes());
    write("node2.log", lines(&[report("node2")]).as_bytes());
    fs::create_dir(folder.path().join("1")).unwrap();
    write("1/stdout", lines(&[report("node3")]).as_bytes());
    // Files next to the reports need not contain one.
    write("1/stderr", b"");
    write("node2.err", b"a warning\n");
    write(".nfs0001", b"");
    nix::unistd::mkfifo(&folder.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink(".", folder.path().join("loop")).unwrap();
    let ran = run(rdma_init([Path::new("compare"), folder.path()])).expect_code(0);
    assert!(ran.text().contains(": 3 nodes: all agree"), "{ran:#?}");
    assert!(differing(&ran).is_empty(), "{ran:#?}");
    // If each node has written its own file, each file must contain a report.
    write("node4.log", b"");
    write("noise.bin", &[0, 1, 0xff, b'{', b'\n'].repeat(1000));
    let ran = run(rdma_init([Path::new("compare"), folder.path()])).expect_code(1);
    assert!(
        ran.text().contains(": 3 nodes: all agree, no check failed, 2 reports cannot be read\n"),
        "{ran:#?}"
    );
    let of = |name: &str| folder.path().join(name).display().to_string();
    assert_eq!(
        differing(&ran),
        [
            format!("unread  {}: it is empty", of("node4.log")),
            format!("unread  {}: there is no report in it", of("noise.bin")),
        ]
    );
    let empty = tempfile::tempdir().unwrap();
    fs::write(empty.path().join("stderr"), "").unwrap();
    let ran = run(rdma_init([Path::new("compare"), empty.path()])).expect_code(1);
    assert!(ran.text().contains("there is no report in this directory"), "{ran:#?}");
}

#[test]
fn what_cannot_be_read_is_named_skipped_and_counted() {
    let whole = report("node001").to_string();
    let mut other = report("node002");
    other["schema"] = json!("rdma-init/self-test/2");
    let mut older = report("node003");
    older.as_object_mut().unwrap().remove("hcas");
    let mut huge = report("node004");
    huge["checks"][0]["evidence"] = json!(["x".repeat(2 << 20)]);
    let first = serde_json::to_string(&in_order(report("node005"))).unwrap();
    let cut = &first[..first.len() / 2];
    let input = format!("{whole}\n{other}\n{older}\n{huge}\n{cut}\n[1,2]<stdout>:{cut}\n{cut}{whole}\n");
    // A node whose report is cut may be the very one that went down.
    let ran = compare(input).expect_code(1);
    assert!(
        ran.text().contains(
            ": 1 node: there is no other to compare it with, no check failed, 7 reports cannot be read"
        ),
        "{ran:#?}"
    );
    let lines = differing(&ran);
    let wanted = [
        ("line 2", "its schema is rdma-init/self-test/2, but this rdma-init reads rdma-init/self-test/1"),
        ("line 3", "missing field `hcas`"),
        ("line 4", "longer than 1 MiB"),
        ("line 5", "cut"),
        ("line 6", "cut"),
        ("line 7", "cut"),
    ];
    for ((line, why), found) in wanted.iter().zip(lines.iter().filter(|line| line.starts_with("unread"))) {
        assert!(found.contains("standard input") && found.contains(line) && found.contains(why), "{ran:#?}");
    }
}

#[test]
fn compare_says_why_it_could_read_nothing() {
    let nothing = "0 nodes: there is no report to compare; pass the output of rdma-init self-test --json";
    let said = |ran: Ran, parts: &[&str]| {
        let ran = ran.expect_code(1);
        for part in [nothing].iter().chain(parts) {
            assert!(ran.text().contains(part), "no {part:?} in {ran:#?}");
        }
    };
    said(compare(""), &["unread  standard input: it is empty"]);
    said(compare("hello\n{}\n"), &["unread  standard input: there is no report in it"]);
    said(compare("{\"schema\": \"rdma-init/self-test/1\""), &["standard input, line 1: the report is cut"]);
    said(run(rdma_init(["compare", "/no/such/file"])), &["/no/such/file", "No such file"]);
    said(run(rdma_init(["compare", "/dev/zero"])), &["/dev/zero", "this is not a log"]);
    let (code, document) = compare_json("");
    assert_eq!((code, &document["nodes"], &document["agree"]), (Some(1), &json!(0), &json!(false)));
    assert_eq!(document["unread"]["count"], 1);
    run(rdma_init(["compare"])).expect_error(&["<FILE>"]);
    run(rdma_init(["compare", "--jsn", "-"])).expect_error(&["--jsn"]);
}

#[test]
fn a_file_that_is_missing_does_not_keep_the_others_from_being_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    fs::write(&path, lines(&[report("node001")])).unwrap();
    let ran = run(rdma_init(["compare", path.to_str().unwrap(), "/no/such/file"])).expect_code(1);
    assert_eq!(
        differing(&ran),
        ["unread  /no/such/file: cannot be read: No such file or directory (os error 2)"]
    );
}
