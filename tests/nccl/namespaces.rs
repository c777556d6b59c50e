//! Tests NCCL's bootstrap interface in network namespaces of this machine with real links. The tests
//! compare what the library uses with what the program predicts from the live facts there, both without
//! rdma-init and under it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rdma_init::facts::Facts;
use rdma_init::facts::document::Document;

use super::case::{Ask, Case};
use super::driver::Nccl;
use super::forecast::Told;
use super::host::Host;
use super::layout::{LAYOUTS, Layout, TWO};
use super::model::{self, Decision, Environment, observed, version};
use super::namespace::Namespace;
use crate::support::binary;
use crate::support::namespace::can_be_made;
use crate::support::nccl::{Library, some};

/// Variables that users set.
const SET: &[&[(&str, &str)]] = &[
    &[],
    &[(IFNAME, "eth")],
    &[(IFNAME, "=eth1")],
    &[(IFNAME, "eth1")],
    &[(IFNAME, "^eth0")],
    &[(IFNAME, "^=eth0")],
    &[(IFNAME, "^docker")],
    &[(IFNAME, "^=eth0,lo")],
    &[(IFNAME, "lo")],
    &[(IFNAME, "e")],
    &[(IFNAME, "")],
    &[(IFNAME, "ens,eth0:1,eth1")],
    &[(FAMILY, "AF_INET")],
    &[(FAMILY, "AF_INET6")],
    &[(FAMILY, "AF_INET6"), (IFNAME, "eth0")],
    &[(FAMILY, "af_inet6"), (IFNAME, "=eth0")],
    &[(ID, "10.2.0.9:4000")],
    &[(ID, "10.1.0.9:4000"), (IFNAME, "eth1")],
    &[(ID, "172.17.0.9:4000")],
    &[(ID, "192.0.2.1:4000")],
    &[(ID, "10.1.2.9")],
    &[(ID, "[fd00::9]:4000")],
    &[(ID, "[fd00::9]:4000"), (FAMILY, "AF_INET")],
    &[(ID, "[fe80::9%eth0]:4000")],
    &[(ID, "[fe80::9]:4000")],
    &[(ID, "[::ffff:10.2.0.9]:4000")],
    &[(ID, "[fd00::9")],
    &[(ID, "")],
];
const IFNAME: &str = "NCCL_SOCKET_IFNAME";
const FAMILY: &str = "NCCL_SOCKET_FAMILY";
const ID: &str = "NCCL_COMM_ID";

/// The settings with which rdma-init also starts NCCL.
const STARTED_WITH: &[&[(&str, &str)]] =
    &[&[], &[(IFNAME, "eth1")], &[(FAMILY, "AF_INET6")], &[(ID, "10.2.0.9:4000")]];

fn owned(set: &[(&str, &str)]) -> Environment {
    set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn case(environment: Environment) -> Case {
    Case { host: Host::default(), environment, asks: vec![Ask::Bootstrap, Ask::Ib] }
}

/// Makes the command that runs rdma-init in the namespace, in an image with this NCCL.
fn rdma_init(namespace: &Namespace, library: &Library, environment: &Environment, profile: &str) -> Command {
    let mut command = namespace.command(binary());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.env("LD_LIBRARY_PATH", library.path.parent().unwrap()).env("RDMA_INIT_PROFILE", profile);
    command
}

fn predicted(namespace: &Namespace, library: &Library, environment: &Environment, profile: &str) -> Decision {
    let output =
        rdma_init(namespace, library, environment, profile).args(["plan", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = Told::parse(&output.stdout);
    assert_eq!(told.nccl(), Some(library.version.as_str()));
    told.forecast()
}

/// Runs NCCL with each of these environments. Returns what NCCL did, and the prediction of `predict`.
fn plainly(
    namespace: &Namespace,
    library: &Library,
    environments: &[Environment],
    predict: impl Fn(&Environment) -> Decision,
) -> Vec<(Decision, Decision)> {
    let cases: Vec<Case> = environments.iter().cloned().map(case).collect();
    let outcomes = Nccl::start_by(|driver| namespace.command(driver), "real", library).run(&cases);
    let pairs = environments.iter().zip(&outcomes);
    pairs.map(|(set, outcome)| (observed(outcome), predict(set))).collect()
}

/// Returns what the program finds in the namespace.
fn facts(namespace: &Namespace) -> Facts {
    let output = namespace.command(binary()).args(["inspect", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Document::parse(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// Runs NCCL as [`plainly`] does, but rdma-init starts it, with one environment.
fn under_rdma_init(
    namespace: &Namespace,
    library: &Library,
    environment: &Environment,
) -> (Decision, Decision) {
    // With this profile, rdma-init sets the variables as for a job that has RDMA.
    let profile = "generic-roce";
    let start = |driver: &Path| {
        let mut command = rdma_init(namespace, library, environment, profile);
        // The report of rdma-init does not matter here.
        command.stderr(Stdio::null()).arg("--").arg(driver);
        command
    };
    let outcome = Nccl::start_by(start, "started", library).run(&[case(Environment::new())]).remove(0);
    (observed(&outcome), predicted(namespace, library, environment, profile))
}

/// Returns a text if NCCL's choice differs from the prediction.
fn differing(place: &str, set: &Environment, pair: &(Decision, Decision)) -> Option<String> {
    let (found, predicted) = pair;
    (found != predicted)
        .then(|| format!("{place} with {set:?}\nNCCL      {found:?}\npredicted {predicted:?}"))
}

fn check(layout: &Layout, libraries: &[Library], wrong: &mut Vec<String>) {
    let namespace = Namespace::of(layout);
    let facts = facts(&namespace);
    let environments: Vec<Environment> = SET.iter().map(|set| owned(set)).collect();
    for library in libraries {
        let place = format!("{} with NCCL {}", layout.name, library.version);
        // Another start of the program for each environment would find the same facts.
        let predict = |set: &Environment| model::predicted(&facts, set, version(library));
        let pairs = plainly(&namespace, library, &environments, predict);
        let before = wrong.len();
        wrong.extend(environments.iter().zip(&pairs).filter_map(|(set, pair)| differing(&place, set, pair)));
        let mut under = Vec::new();
        for set in STARTED_WITH {
            let pair = under_rdma_init(&namespace, library, &owned(set));
            wrong.extend(differing(&format!("{place}, under rdma-init"), &owned(set), &pair));
            under.push(pair.0.bootstrap);
        }
        if let Some(right) = layout.right.filter(|right| under[0] != *right) {
            wrong.push(format!("{place}: under rdma-init {} instead of {right}", under[0]));
        }
        println!(
            "{:26} {:8} {:38} {:38} {}",
            layout.name,
            library.version,
            pairs[0].0.bootstrap,
            under[0],
            match wrong.len() - before {
                0 => format!("all {}", pairs.len() + under.len()),
                count => format!("{count} of {} NOT", pairs.len() + under.len()),
            }
        );
    }
}

#[test]
fn links_of_network_namespaces() {
    if !can_be_made() {
        return;
    }
    let libraries = some(&["2.28.9"]);
    let mut wrong = Vec::new();
    println!("{:26} {:8} {:38} {:38} as predicted", "links", "NCCL", "plain", "under rdma-init");
    for layout in LAYOUTS {
        check(layout, &libraries, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Puts an nccl.conf in every place where NCCL looks for one, and a file for NCCL_CONF_FILE. Compares NCCL
/// with the prediction for each of these environments.
fn check_conf_files(choose: impl Fn(&Namespace) -> Vec<Environment>) {
    if !can_be_made() {
        return;
    }
    let namespace = Namespace::of(&TWO);
    namespace
        .write("/etc/nccl.conf", "# by the image\nNCCL_SOCKET_IFNAME=eth1\nNCCL_SOCKET_FAMILY=AF_INET\n");
    namespace.write(namespace.home_of_the_database().join(".nccl.conf"), "NCCL_SOCKET_IFNAME==eth0\r\n");
    namespace.write(namespace.home_by_variable().join(".nccl.conf"), "NCCL_SOCKET_IFNAME=lo\n");
    namespace.write(own_conf(&namespace), "NCCL_SOCKET_IFNAME=^lo,eth0\nNCCL_DEBUG=WARN\n");
    let sets = choose(&namespace);
    let mut wrong = Vec::new();
    for library in some(&["2.23.4", "2.30.7"]) {
        let place = format!("NCCL {}", library.version);
        let predict = |set: &Environment| predicted(&namespace, &library, set, "none");
        for (set, pair) in sets.iter().zip(plainly(&namespace, &library, &sets, predict)) {
            println!("{:8} {:38} {:?}", library.version, pair.0.bootstrap, set);
            wrong.extend(differing(&place, set, &pair));
            let pair = under_rdma_init(&namespace, &library, set);
            wrong.extend(differing(&format!("{place}, under rdma-init"), set, &pair));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn own_conf(namespace: &Namespace) -> PathBuf {
    namespace.home_by_variable().join("own.conf")
}

fn variable(name: &str, value: impl AsRef<Path>) -> (String, String) {
    (name.to_owned(), value.as_ref().display().to_string())
}

#[test]
fn conf_files_of_a_container() {
    check_conf_files(|namespace| {
        let home = variable("HOME", namespace.home_of_the_database());
        let own = variable("NCCL_CONF_FILE", own_conf(namespace));
        let sets = [
            vec![],
            vec![variable("NCCL_CONF_FILE", "")],
            vec![variable("NCCL_CONF_FILE", "/dev/null")],
            vec![own.clone()],
            vec![own, variable(IFNAME, "eth0")],
            vec![variable(IFNAME, "")],
            vec![variable(IFNAME, "eth0")],
        ];
        sets.into_iter().map(|set| [vec![home.clone()], set].concat()).collect()
    });
}

#[test]
fn the_home_folder_of_the_user_database() {
    check_conf_files(|namespace| vec![vec![], vec![variable("HOME", namespace.home_by_variable())]]);
}
