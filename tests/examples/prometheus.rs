//! Gives the alerts of examples/prometheus to promtool, and to a Prometheus that scrapes metrics of this program. The
//! Prometheus then answers each query of the dashboard. The kernel's files, and the lines of the watcher, are made up.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::dashboard;
use super::setup::{prepared, value};
use crate::support::port::free_port;
use crate::support::{binary, namespace, poll_until, repository};

/// A rail with each counter that the dashboard shows.
const HOST: &str = r#"
    mount -t tmpfs none /sys/class
    port=/sys/class/infiniband/mlx5_0/ports/1
    mkdir -p $port/counters $port/hw_counters
    echo '4: ACTIVE' >$port/state
    echo '400 Gb/sec (4X NDR)' >$port/rate
    for counter in port_xmit_data port_rcv_data link_downed local_link_integrity_errors symbol_error port_rcv_errors \
        port_xmit_discards
    do echo 1000 >$port/counters/$counter
    done
    for counter in local_ack_timeout_err packet_seq_err implied_nak_seq_err out_of_sequence rnr_nak_retry_err \
        out_of_buffer req_transport_retries_exceeded
    do echo 1000 >$port/hw_counters/$counter
    done
    exec "$0" stat --format prometheus
"#;

/// What the watcher adds to the file.
fn lines_of_the_watcher() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    format!(
        "rdma_init_watcher_up{{host=\"pod-1\"}} 1\n\
         rdma_init_watcher_last_look_timestamp_seconds{{host=\"pod-1\"}} {now}\n\
         rdma_init_last_traffic_timestamp_seconds{{host=\"pod-1\"}} {now}\n\
         rdma_init_findings_total{{host=\"pod-1\",id=\"link-down\",severity=\"warning\"}} 3\n"
    )
}

fn alerts() -> String {
    repository("examples/prometheus/alerts.yml").display().to_string()
}

#[test]
fn promtool_takes_the_alerts_and_their_tests() {
    let Some(prometheus) = prepared("prometheus") else { return };
    for what in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let mut promtool = Command::new(Path::new(&value(&prometheus, "PROMETHEUS")).join("promtool"));
        let judged = promtool.args(what).current_dir(repository("examples/prometheus")).output().unwrap();
        let said = [judged.stdout, judged.stderr].concat();
        assert!(judged.status.success(), "{what:?}: {}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() {
    let [rules, tests, readme] = ["alerts.yml", "alerts_test.yml", "README.md"]
        .map(|name| fs::read_to_string(repository("examples/prometheus").join(name)).unwrap());
    let of_tests: Vec<(&str, bool)> = tests
        .split("alertname: ")
        .skip(1)
        .map(|rest| (rest.split([',', '\n']).next().unwrap(), rest.contains("exp_alerts:")))
        .collect();
    assert_eq!(tests.matches("exp_alerts:").count(), of_tests.iter().filter(|(_, fires)| *fires).count());
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        for fires in [true, false] {
            assert!(
                of_tests.contains(&(name, fires)),
                "alerts_test.yml lacks a test of {name}: fires {fires}"
            );
        }
        assert!(readme.contains(&format!("`{name}`")), "README.md does not explain {name}");
    }
}

#[test]
fn a_prometheus_takes_the_alerts_and_answers_the_dashboard() {
    let Some(programs) = prepared("prometheus") else { return };
    if !namespace::can_be_made() {
        return;
    }
    let made =
        Command::new("unshare").args(["--mount", "--", "sh", "-ec", HOST]).arg(binary()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let metrics = String::from_utf8(made.stdout).unwrap();
    let mut known = names(&metrics);
    known.extend(names(&lines_of_the_watcher()));

    let program = Path::new(&value(&programs, "PROMETHEUS")).join("prometheus");
    let prometheus = Prometheus::start(&program, served(metrics));
    poll_until("the target is up", || {
        let targets = prometheus.ask("targets", &[]);
        let health = &targets["activeTargets"][0]["health"];
        (health == "up").then_some(())
    });

    let rules = poll_until("all rules were evaluated", || {
        let groups = prometheus.ask("rules", &[]);
        let rules = groups["groups"][0]["rules"].as_array()?.clone();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    assert!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:#?}");
    let text = fs::read_to_string(alerts()).unwrap();
    assert_eq!(
        rules.len(),
        text.matches("\n      - alert: ").count() + text.matches("\n      - record: ").count()
    );
    let recorded = rules.iter().filter(|rule| rule["type"] == "recording");
    known.extend(recorded.map(|rule| rule["name"].as_str().unwrap().to_owned()));
    for rule in &rules {
        are_known(rule["query"].as_str().unwrap(), &known);
    }

    for query in dashboard::queries().iter().map(String::as_str).chain(["rdma_init:watching == 1"]) {
        are_known(query, &known);
        poll_until(query, || {
            let answer = prometheus.ask("query", &[("query", query)]);
            answer["result"].as_array().filter(|series| !series.is_empty()).map(|_| ())
        });
    }
}

/// Returns the names of this program's metrics, and of the rules, in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let are_metrics = words.filter(|word| word.starts_with("node_") || word.starts_with("rdma_init"));
    are_metrics.map(str::to_owned).collect()
}

#[track_caller]
fn are_known(query: &str, known: &BTreeSet<String>) {
    let unknown: Vec<_> = names(query).into_iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{query}: there are no metrics {unknown:?}");
}

/// Serves these metrics and the watcher's lines. Each counter of a port has risen since the last scrape. Returns the port.
fn served(metrics: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (count, client) in listener.incoming().enumerate() {
            let mut text = lines_of_the_watcher();
            for line in metrics.lines().filter(|line| !line.starts_with('#')) {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let rises = series.contains("_total{") || series.starts_with("rdma_init_driver_value{");
                let value = value.parse::<u64>().unwrap() + if rises { count as u64 } else { 0 };
                text.push_str(&format!("{series} {value}\n"));
            }
            // A client that has left asks again.
            let _ = client.and_then(|client| answer(client, &text));
        }
    });
    port
}

fn answer(mut client: TcpStream, text: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    write!(
        client,
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

/// A Prometheus in a directory of its own.
struct Prometheus {
    server: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(program: &Path, target: u16) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let [config, log, data] = ["prometheus.yml", "log", "data"].map(|name| folder.path().join(name));
        let scraped =
            json!({"job_name": "node", "static_configs": [{"targets": [format!("127.0.0.1:{target}")]}]});
        let global = json!({"scrape_interval": "1s", "evaluation_interval": "1s"});
        // JSON is YAML as well.
        let text = json!({"global": global, "rule_files": [alerts()], "scrape_configs": [scraped]});
        fs::write(&config, text.to_string()).unwrap();
        let start = || {
            let port = free_port();
            let sink = File::create(&log).unwrap();
            let server = Command::new(program)
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .stdout(sink.try_clone().unwrap())
                .stderr(sink)
                .spawn()
                .unwrap();
            (server, port)
        };
        let (server, port) = start();
        let mut prometheus = Prometheus { server, port, _folder: folder };
        poll_until("Prometheus is ready", || {
            if prometheus.server.try_wait().unwrap().is_some() {
                let said = fs::read_to_string(&log).unwrap();
                assert!(said.contains("address already in use"), "{said}");
                (prometheus.server, prometheus.port) = start();
            }
            prometheus.get("/-/ready").filter(|answer| answer.starts_with("HTTP/1.0 200 ")).map(|_| ())
        });
        prometheus
    }

    /// Returns what the API says.
    #[track_caller]
    fn ask(&self, what: &str, with: &[(&str, &str)]) -> Value {
        let with: Vec<String> =
            with.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        let answer = self.get(&format!("/api/v1/{what}?{}", with.join("&"))).expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let mut body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["status"], "success", "{with:?}: {body}");
        body["data"].take()
    }

    /// Returns the whole answer. HTTP/1.0 has no chunks.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Returns the text as a part of a URL.
fn quoted(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
