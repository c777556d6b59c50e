//! Simulates a day beside a healthy job: the watcher reports nothing, whatever the counters do on their
//! own.

use std::time::Duration;

use super::judge::Judge;
use super::track::WatchedPort;
use crate::facts::fake_root::FakeRoot;
use crate::facts::port_counters::Counters;
use crate::facts::port_errors::{self, PortErrors};
use crate::facts::port_look::PortLook;
use crate::facts::traffic::{CounterValue, Traffic};
use crate::findings::port_name::RailId;

/// The default of `watch-interval`, and how many intervals a day has.
const INTERVAL: u64 = 10;
const LOOKS: u64 = 24 * 3600 / INTERVAL;
/// The default of `watch-after`.
const AFTER: u64 = 600;

const WRAPS: u64 = 1 << 32;

const FOLDER: &str = "sys/class/infiniband/x_0/ports/1";
const TIMEOUTS: &str = "hw_counters/local_ack_timeout_err";

/// A port whose error counters are files, which are rewritten when they change.
struct Port {
    files: FakeRoot,
    sent: u64,
    errors: PortErrors,
}

impl Port {
    fn new(sent: u64, counters: &[(&str, u64)]) -> Port {
        let mut port = Port { files: FakeRoot::new(), sent, errors: PortErrors::default() };
        port.files.file(&format!("{FOLDER}/state"), "4: ACTIVE\n");
        port.set(counters);
        port
    }

    fn set(&mut self, counters: &[(&str, u64)]) {
        for (path, count) in counters {
            self.files.file(&format!("{FOLDER}/{path}"), format!("{count}\n"));
        }
        let reader = self.files.reader();
        self.errors = port_errors::read(&Counters::new(&reader).of("x_0", 1));
    }

    fn look(&self) -> PortLook {
        let sent = CounterValue { bytes: Some(self.sent), packets: None };
        PortLook {
            traffic: Traffic { sent, ..Traffic::default() },
            errors: self.errors.clone(),
            ..PortLook::default()
        }
    }
}

#[test]
fn a_day_of_a_sound_job_is_silent() {
    // Earlier trouble left the error counters at their maximum, and a 32-bit counter wraps around.
    let full = Port::new(
        u64::MAX - (1 << 30),
        &[
            (TIMEOUTS, WRAPS - 1000),
            ("hw_counters/req_transport_retries_exceeded", WRAPS - 1),
            ("counters/link_downed", 255),
            ("counters/link_error_recovery", 255),
            ("counters/local_link_integrity_errors", 15),
            ("counters/symbol_error", 65535),
        ],
    );
    // A few errors per hour bring this port's counters to their maximum.
    let filling = Port::new(0, &[("counters/symbol_error", 65000), ("counters/port_rcv_errors", 65400)]);
    // This port's counters are cleared every six hours, whatever their values.
    let counters = [
        (TIMEOUTS, 3 << 30),
        ("hw_counters/req_rnr_retries_exceeded", 70_000),
        ("counters/link_downed", 200),
    ];
    let cleared = Port::new(1 << 40, &counters);
    let mut ports = [full, filling, cleared];
    let watched = ports.iter().enumerate().map(|(index, port)| WatchedPort {
        rail: RailId::new(&format!("mlx5_{index}"), 1),
        is_infiniband: true,
        first: port.look(),
        ..WatchedPort::default()
    });
    let mut judge = Judge::patient(watched.collect(), Duration::from_secs(AFTER));
    let mut full = Vec::new();
    for look in 1..=LOOKS {
        // Each hour, the job writes a checkpoint that takes almost as long as traffic may pause.
        let rests = look * INTERVAL % 3600 > 3600 - AFTER;
        for port in ports.iter_mut().filter(|_| !rests) {
            port.sent = port.sent.wrapping_add(1 << 20);
        }
        if look % 6 == 0 {
            let minute = look / 6;
            ports[0].set(&[(TIMEOUTS, (WRAPS - 1000 + 5 * minute) % WRAPS)]);
            ports[1].set(&[
                ("counters/symbol_error", (65000 + minute / 2).min(65535)),
                ("counters/port_rcv_errors", (65400 + minute).min(65535)),
            ]);
        }
        if look % (LOOKS / 4) == 0 {
            ports[2].sent = 0;
            ports[2].set(&counters.map(|(path, _)| (path, 0)));
        }
        let looks = ports.iter().map(Port::look).collect();
        for finding in judge.judge(Duration::from_secs(look * INTERVAL), looks) {
            // Full counters are not a problem, and each is reported once.
            assert!(finding.message.contains("have reached their maximum"), "{look}: {finding:?}");
            full.push(finding.about.ports.concat());
        }
    }
    assert_eq!(full, ["mlx5_0:1", "mlx5_1:1", "mlx5_1:1"]);
    // Problems after that day are still reported.
    ports[2].set(&[("counters/link_downed", 1)]);
    let end = Duration::from_secs((LOOKS + 1) * INTERVAL);
    let findings = judge.judge(end, ports.iter().map(Port::look).collect());
    assert!(findings.iter().any(|one| one.message.contains("mlx5_2, 1 time")), "{findings:?}");
}
