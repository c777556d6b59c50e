//! Runs the MPIJob with the real sshd and mpirun. Workers and launcher are containers that get the mounts
//! and variables of the operator.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::images::image;
use super::manifests::manifests;
use super::started::{Described, containers, texts};
use crate::support::docker::host::Host;
use crate::support::docker::{Container, Engine, engine};
use crate::support::{poll_until, repository};

/// What the operator and the kubelet add to the environment of the launcher.
const LAUNCHER: &[(&str, &str)] = &[
    ("K_MPI_JOB_ROLE", "launcher"),
    ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
    ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
    ("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
    ("OMPI_MCA_orte_set_default_slots", "8"),
    // What the manifest takes from the Secret.
    ("PREFLIGHT_TOKEN", "0123456789abcdef"),
];

const SLOTS: usize = 8;

fn worker_name(number: u8) -> String {
    format!("train-worker-{number}.train.default.svc")
}

/// Makes the directories of the operator's Secret and ConfigMap.
fn mounted(folder: &Path) {
    let ssh = folder.join("ssh");
    fs::create_dir(&ssh).unwrap();
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "rsa", "-N", "", "-f"]).arg(ssh.join("id_rsa"));
    assert!(keygen.status().unwrap().success());
    fs::copy(ssh.join("id_rsa.pub"), ssh.join("authorized_keys")).unwrap();
    // All users can write to the directory of a Secret.
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(folder.join("mpi")).unwrap();
    let hosts: String = (0..2).map(|number| format!("{} slots={SLOTS}\n", worker_name(number))).collect();
    fs::write(folder.join("mpi/hostfile"), hosts).unwrap();
}

fn start<'e>(
    engine: &'e Engine,
    described: &Described,
    folder: &Path,
    host: &Host,
    more: &[&str],
    platform: &[(&str, &str)],
) -> Option<Container<'e>> {
    let image = image(engine, "examples/mpijob/Dockerfile")?;
    let (mut options, arguments) = described.docker_run(platform);
    let python = repository("tests/examples/standin.sh");
    for volume in [
        format!("{}:/root/.ssh:ro", folder.join("ssh").display()),
        format!("{}:/etc/mpi:ro", folder.join("mpi").display()),
        format!("{}:/usr/local/bin/python:ro", python.display()),
    ] {
        options.extend(["--volume".to_owned(), volume]);
    }
    let options = [texts(&options).as_slice(), more].concat();
    Some(engine.start_image(&image, host.options(&options), &texts(&arguments)))
}

/// Makes a worker's host. The HCAs of the two workers have different names.
fn worker_host(engine: &Engine, number: u8) -> Host {
    let network = engine.network();
    let address = network.address();
    Host::new().on(network, address).hca(number, "eth0", network, address).allot(number)
}

#[test]
fn each_rank_gets_what_was_decided_on_its_own_node() {
    let Some(engine) = engine() else { return };
    let Some(manifests) = manifests() else { return };
    let manifest = manifests.iter().find(|manifest| manifest.example() == "mpijob").unwrap();
    let described = containers(manifest);
    let of = |name: &str| described.iter().find(|described| described.name == name).unwrap();
    let folder = tempfile::tempdir().unwrap();
    mounted(folder.path());

    let hosts = [0, 1].map(|number| worker_host(engine, number));
    let mut workers = Vec::new();
    for (number, host) in (0..).zip(&hosts) {
        let name = worker_name(number);
        let more = ["--network-alias", &name];
        let role = [("K_MPI_JOB_ROLE", "worker")];
        let Some(worker) = start(engine, of("mpijob/worker"), folder.path(), host, &more, &role) else {
            return;
        };
        poll_until("the worker is ready", || {
            (worker.exec(&["/rdma-init", "status"]).code == Some(0)).then_some(())
        });
        worker.limit_rate();
        workers.push(worker);
    }

    let network = engine.network();
    let host = Host::new().on(network, network.address());
    // The workers' devices are made up, so the job fails in its preflight and reports why.
    let launcher = start(engine, of("mpijob/launcher"), folder.path(), &host, &[], LAUNCHER).unwrap();
    let ended = launcher.wait();
    assert!(ended.code != Some(0) && ended.stdout.contains("preflight: FAILED (2 nodes"), "{ended:#?}");
    assert!(!ended.stdout.contains("argument train.py"), "{ended:#?}");

    let launch = |change: &dyn Fn(&str, &str) -> String| {
        let mut container = of("mpijob/launcher").container.clone();
        let script = container["args"].as_array_mut().unwrap().last_mut().unwrap();
        let (preflight, ranks) = script.as_str().unwrap().split_once("&& ").unwrap();
        *script = change(preflight, ranks).into();
        let changed =
            Described { container: &container, name: "mpijob/launcher".into(), ..*of("mpijob/launcher") };
        start(engine, &changed, folder.path(), &host, &[], LAUNCHER).unwrap().wait()
    };
    // Without devices, the preflight uses the network of the containers.
    for ranks in ["ppr:1:node", "ppr:2:node"] {
        let ended = launch(&|preflight, _| {
            let mapped = preflight.replace("ppr:1:node", ranks);
            mapped.replace("/rdma-init", "-x NCCL_IB_DISABLE=1 /rdma-init")
        });
        let ended = ended.expect_code(0);
        let is_verdict =
            |line: &&str| line.contains("preflight: passed") && line.contains("(2 nodes, 1 rail");
        assert_eq!(ended.stdout.lines().filter(is_verdict).count(), 1, "{ended:#?}");
    }
    let ended = launch(&|_, ranks| ranks.to_owned()).expect_code(0);
    let count = |line: &str| ended.stdout.lines().filter(|found| *found == line).count();
    assert_eq!(count("argument train.py"), 2 * SLOTS, "{ended:#?}");
    for value in ["=mlx5_0", "=mlx5_1"] {
        assert_eq!(count(&format!("NCCL_IB_HCA={value}")), SLOTS, "{value}: {ended:#?}");
    }
    assert_eq!(count("NCCL_IB_GID_INDEX=5"), 2 * SLOTS, "{ended:#?}");

    for worker in workers {
        worker.signal("TERM");
        worker.wait().expect_code(0);
    }
}
