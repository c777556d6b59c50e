//! Runs Ray on nodes that are containers, each with its own HCA. A worker on each node keeps the variables
//! of that node, although the driver's are copied to it as vLLM copies them. Its NCCL gets the node's
//! variables in any case.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use crate::support::docker::host::Host;
use crate::support::docker::{Container, Engine, engine};
use crate::support::nccl::libraries;
use crate::support::{poll_for, repository};

/// Two cores that are busy with other work need this long to start Ray.
const START: Duration = Duration::from_secs(180);

/// The virtual environment with Ray, and the directory of the Python installation it is based on.
static RAY: LazyLock<[String; 2]> = LazyLock::new(|| {
    let setup = repository("tests/launchers/ray.sh");
    let setup = Command::new(setup).stderr(Stdio::inherit()).output().unwrap();
    assert!(setup.status.success(), "Ray cannot be installed (see above)");
    let said = String::from_utf8(setup.stdout).unwrap();
    let mut lines = said.lines().map(str::to_owned);
    [lines.next().unwrap(), lines.next().unwrap()]
});

/// The directory of the newest NCCL, and the address of ncclGetEnv in the library.
static NCCL: LazyLock<[String; 2]> = LazyLock::new(|| {
    let library = libraries().pop().unwrap();
    let folder = library.path.parent().unwrap().canonicalize().unwrap();
    [folder.display().to_string(), library.offset("ncclGetEnv")]
});

/// vLLM's list, with an entry of the user.
const LIST: &str = "/root/.config/vllm/ray_non_carry_over_env_vars.json";

/// A node whose only HCA has this number.
struct Node<'e> {
    container: Container<'e>,
    address: Ipv4Addr,
    hca: String,
    _host: Host,
}

/// Starts the container of a node. Its command is a shell script.
fn node<'e>(engine: &'e Engine, number: u8, script: impl FnOnce(Ipv4Addr) -> String) -> Node<'e> {
    let network = engine.network();
    let address = network.address();
    let host = Host::new().on(network, address).hca(number, "eth0", network, address).allot(number);
    let [ray, python] = &*RAY;
    // According to pip's metadata, the image has vLLM as well.
    let packages = host.folder("packages");
    std::fs::create_dir_all(packages.join("vllm-0.23.0.dist-info")).unwrap();
    let mut options: Vec<String> = ["--shm-size", "256m"].map(str::to_owned).to_vec();
    let [nccl, _] = &*NCCL;
    for path in ["/usr", "/lib", "/lib64", ray, python, nccl, repository("tests/launchers").to_str().unwrap()]
    {
        options.extend(["--volume".to_owned(), format!("{path}:{path}:ro")]);
    }
    options.extend(["--volume".to_owned(), format!("{}:/packages:ro", packages.display())]);
    for variable in [
        format!("PATH={ray}/bin:/bin:/usr/bin"),
        "HOME=/root".to_owned(),
        "PYTHONPATH=/packages".to_owned(),
        format!("LD_LIBRARY_PATH={nccl}"),
        "RAY_USAGE_STATS_ENABLED=0".to_owned(),
    ] {
        options.extend(["--env".to_owned(), variable]);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let container = engine.start(host.options(&options), &["sh", "-c", &script(address)]);
    Node { container, address, hca: format!("NCCL_IB_HCA==mlx5_{number}"), _host: host }
}

const SMALL: &str = "--num-cpus=1 --object-store-memory=78643200";

/// Runs a command in a node, and waits until it has succeeded. Returns its output.
fn exec(engine: &Engine, node: &Node, command: &[&str]) -> String {
    let run = || {
        let mut docker = engine.client();
        let output = docker.args(["exec", &node.container.name]).args(command).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(said),
            false => Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr))),
        }
    };
    let mut last = String::new();
    let ran = poll_for(START, || run().map_err(|why| last = why).ok());
    ran.unwrap_or_else(|| panic!("{command:?} did not succeed within {START:?}: {last}"))
}

#[test]
#[ignore = "needs Ray: make test-ray"]
fn an_actor_on_each_node_has_the_variables_of_its_own_node() {
    let Some(engine) = engine() else { return };
    let head = node(engine, 0, |address| {
        format!(
            "exec ray start --head --block --port=6379 --node-ip-address={address} --include-dashboard=false {SMALL}"
        )
    });
    let join = |address: Ipv4Addr| {
        format!("ray start --address={}:6379 --node-ip-address={address} {SMALL}", head.address)
    };
    exec(engine, &head, &["ray", "health-check", "--address", &format!("{}:6379", head.address)]);
    let second = node(engine, 1, |address| format!("exec {} --block", join(address)));
    // The user starts Ray on the third node later, with docker exec.
    let third = node(engine, 2, |_| "exec sleep 1000".to_owned());
    let later = join(third.address);
    let words: Vec<&str> = ["/rdma-init", "exec", "--"].into_iter().chain(later.split(' ')).collect();
    exec(engine, &third, &words);

    let list = exec(engine, &head, &["cat", LIST]);
    for name in ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_ENV_PLUGIN", "NCCL_RDMA_INIT"] {
        assert!(list.contains(&format!("\"{name}\"")), "{list}");
    }
    let driver = repository("tests/launchers/driver.py").display().to_string();
    let [folder, offset] = &*NCCL;
    let library = format!("{folder}/libnccl.so.2");
    let words = ["/rdma-init", "exec", "--", "python", &driver, "3"];
    let drive = |mode| exec(engine, &head, &[&words[..], &[mode, &library, offset]].concat());
    let has = |said: &str, node: &Node, hca: &str| {
        let start = format!("{} ", node.address);
        let line = said.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{said}"));
        assert!(line.split(' ').any(|word| word == hca), "{hca}: {said}");
    };
    let said = drive("keep");
    for node in [&head, &second, &third] {
        has(&said, node, &node.hca);
        has(&said, node, &format!("gets:{}", node.hca));
    }
    // Without the list, the workers of all nodes get the HCA variable of the driver's node, but NCCL still
    // gets the values of its own node.
    let said = drive("ignore");
    for node in [&head, &second, &third] {
        has(&said, node, &head.hca);
        has(&said, node, &format!("gets:{}", node.hca));
    }
    // Ray's own hook: `exec` in front of each worker removes the values of the driver's node that
    // `runtime_env` contains.
    let said = drive("runtime");
    for node in [&head, &second, &third] {
        has(&said, node, &node.hca);
    }
}
