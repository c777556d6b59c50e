//! Runs NCCL on real RDMA devices, in containers of a virtual machine. Without rdma-init, NCCL makes a
//! wrong choice; under rdma-init, it makes the right one. The program predicts both. tests/vm/guest/nccl.sh
//! describes the hosts.

use std::collections::BTreeMap;
use std::fs;

use super::driver::next;
use super::forecast::Told;
use super::model::{Decision, Nics, observed};
use crate::support::nccl::{Library, driver, some};
use crate::support::{binary, vm};

/// The oldest release does not search for a GID index. These search and stop at an empty entry, do this with the checks
/// of 2.23, and continue after an empty entry.
const CHANGED: &[&str] = &["2.21.5", "2.23.4", "2.26.2"];

const HOSTS: &[&str] = &["same", "list", "different", "ipv6", "broken", "none"];

/// Returns whether the right GID indexes differ between the HCAs of a host.
fn differs(host: &str) -> bool {
    ["different", "ipv6"].contains(&host)
}

/// Returns whether one address range leads each HCA of a host to its right GID, but no index does so for
/// the whole lifetime of the job: either the right indexes differ, or there is one HCA.
fn has_range(host: &str) -> bool {
    differs(host) || host == "broken"
}

/// Returns the versions that run on a host. If NCCL only chooses HCAs there, these are the oldest and the
/// newest one.
fn of_host<'a>(host: &str, libraries: &'a [Library]) -> Vec<&'a Library> {
    let is_edge = |place: usize| place == 0 || place + 1 == libraries.len();
    let all = ["same", "different", "ipv6"].contains(&host);
    libraries
        .iter()
        .enumerate()
        .filter(|(place, _)| all || is_edge(*place))
        .map(|(_, library)| library)
        .collect()
}

/// The output below each heading `HOST VERSION WHAT`.
struct Sections(BTreeMap<String, Vec<u8>>);

impl Sections {
    fn parse(said: &[u8]) -> Sections {
        let mut sections = BTreeMap::<_, Vec<u8>>::new();
        let mut heading = String::new();
        for line in said.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_prefix(b"@ ") {
                Some(line) => heading = String::from_utf8_lossy(line).trim_end().to_owned(),
                None => sections.entry(heading.clone()).or_default().extend(line),
            }
        }
        Sections(sections)
    }

    fn get(&self, heading: &str) -> &[u8] {
        self.0.get(heading).unwrap_or_else(|| panic!("nothing was said of {heading:?}"))
    }

    fn plan(&self, heading: &str) -> Told {
        Told::parse(self.get(heading))
    }

    fn decision(&self, heading: &str) -> Decision {
        observed(&next(&mut self.get(heading), &heading))
    }

    fn show(&self, heading: &str) -> String {
        format!("@ {heading}\n{}", String::from_utf8_lossy(self.get(heading)))
    }
}

/// What a job must use.
struct Right(Decision);

impl Right {
    /// Reads a line `bootstrap INTERFACE ADDRESS`, and the name and GID index of each HCA.
    fn parse(text: &str) -> Right {
        let mut lines = text.lines();
        let bootstrap = lines.next().unwrap().strip_prefix("bootstrap ").unwrap().to_owned();
        let port = |line: &str| {
            let (hca, slot) = line.split_once(' ').unwrap();
            (format!("{hca}:1/RoCE"), slot.to_owned())
        };
        Right(Decision { bootstrap, ports: lines.map(port).collect(), nics: Nics::Unknown })
    }

    /// Returns whether this decision is right for a job, even if it omits some HCAs.
    fn has_all_of(&self, decision: &Decision) -> bool {
        decision.bootstrap == self.0.bootstrap
            && !decision.ports.is_empty()
            && decision.ports.iter().all(|(port, slot)| self.0.ports.get(port) == Some(slot))
    }
}

/// Returns a text such as `eth0, mlx5_1@2 mlx5_2@2`.
fn shown(decision: &Decision) -> String {
    let interface = decision.bootstrap.split(' ').next().unwrap_or_default();
    let port = |(port, slot): (&String, &String)| format!("{}@{slot}", port.split(':').next().unwrap());
    let ports: Vec<String> = decision.ports.iter().map(port).collect();
    format!("{interface}, {}", if ports.is_empty() { "no HCA".to_owned() } else { ports.join(" ") })
}

/// Prints a line of the table. Returns the checks that failed.
fn judge(sections: &Sections, host: &str, library: &Library) -> Vec<&'static str> {
    let of = |what: &str| format!("{host} {} {what}", library.version);
    let right = Right::parse(&String::from_utf8_lossy(sections.get(&format!("{host} any right"))));
    let (plain, under) = (sections.decision(&of("plain")), sections.decision(&of("under")));
    let plan = sections.plan(&of("under-plan"));
    let predicted = [sections.plan(&of("plain-plan")).forecast(), plan.forecast()];
    let is_predicted = predicted == [plain.clone(), under.clone()];
    let agreement = if is_predicted { "both".to_owned() } else { predicted.map(|p| shown(&p)).join("; ") };
    println!("{:8} {host:10} {:38} {:28} {agreement}", library.version, shown(&plain), shown(&under));

    // A version that does not search uses one GID index for all HCAs.
    let is_led = !differs(host) || library.is_at_least("2.21");
    let is_right = if is_led { under == right.0 } else { right.has_all_of(&under) };
    let checks = [
        (is_predicted, "not as predicted"),
        (plain != right.0, "plain NCCL is right, so this shows nothing"),
        (is_right, "under rdma-init not right"),
        (plan.nccl() == Some(&library.version), "the release is not found"),
        (is_led != plan.has_finding("gid-slots-differ"), "the finding on slots is not as it should be"),
        (
            (has_range(host) && library.is_at_least("2.21")) == plan.value("NCCL_IB_ADDR_RANGE").is_some(),
            "the range is not as it should be",
        ),
    ];
    checks.iter().filter(|(holds, _)| !holds).map(|(_, what)| *what).collect()
}

#[test]
fn containers_with_soft_roce() {
    let libraries = some(CHANGED);
    let folder = tempfile::tempdir().unwrap();
    let releases = folder.path().join("releases");
    let line = |library: &Library| {
        let place = library.path.parent().unwrap().display();
        format!("{} {place} {}\n", library.version, library.symbols().join(" "))
    };
    fs::write(&releases, libraries.iter().map(line).collect::<String>()).unwrap();
    let Some(said) = vm::guest("nccl.sh", &[&binary(), &driver().join("driver"), &releases]) else { return };
    let sections = Sections::parse(&said);
    println!("{:8} {:10} {:38} {:28} predicted", "NCCL", "host", "plain", "under rdma-init");
    let mut wrong = Vec::new();
    for host in HOSTS {
        for library in of_host(host, &libraries) {
            let of = |what: &str| sections.show(&format!("{host} {} {what}", library.version));
            for what in judge(&sections, host, library) {
                wrong.push(format!("{what}:\n{}{}{}", of("plain"), of("under"), of("report")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
