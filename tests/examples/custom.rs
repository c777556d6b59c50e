//! Applies the custom resources of the examples to Kubernetes' own server for them (apiextensions-apiserver), with the
//! operators' own definitions: it takes each as it is, and refuses mistakes with the field.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::manifests::manifests;
use super::setup::value;
use crate::support::port::free_port;
use crate::support::{poll_until, repository};

/// The directory with the definitions.
const DEFINITIONS: &str = "RDMA_INIT_TEST_CRDS";

/// Where the definitions are.
const DEFINED: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";

/// A mistake in a manifest: what is replaced by what, and the field that the server then names.
type Mistake = (&'static str, &'static str, &'static str);

/// The resources of the examples: the operator's file, the path of the API, the manifest, and mistakes in it.
const RESOURCES: [(&str, &str, &str, &[Mistake]); 7] = [
    (
        // https://github.com/kubeflow/training-operator/tree/v1.9.0/manifests/base/crds
        "kubeflow.org_pytorchjobs.yaml",
        "kubeflow.org/v1/namespaces/default/pytorchjobs",
        "cce-pytorchjob/pytorchjob.yaml",
        &[
            ("pytorchReplicaSpecs", "pyTorchReplicaSpecs", "spec.pyTorchReplicaSpecs"),
            ("restartPolicy: OnFailure", "restartpolicy: OnFailure", "restartpolicy"),
            ("replicas: 1", "replicas: one", "spec.pytorchReplicaSpecs.Master.replicas"),
        ],
    ),
    (
        // https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/config/components/crd/bases
        "jobset.x-k8s.io_jobsets.yaml",
        "jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
        "jobset/jobset.yaml",
        &[
            ("enableDNSHostnames", "enableDnsHostnames", "spec.network.enableDnsHostnames"),
            ("maxRestarts: 3", "maxRestarts: three", "spec.failurePolicy.maxRestarts"),
        ],
    ),
    (
        // https://github.com/kubernetes-sigs/lws/tree/v0.10.0/config/crd/bases
        "leaderworkerset.x-k8s.io_leaderworkersets.yaml",
        "leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets",
        "leaderworkerset/leaderworkerset.yaml",
        &[
            ("size: 2", "size: two", "spec.leaderWorkerTemplate.size"),
            ("RecreateGroupOnPodRestart", "RecreateGroup", "spec.leaderWorkerTemplate.restartPolicy"),
            ("workerTemplate:", "template:", "spec.leaderWorkerTemplate.template"),
        ],
    ),
    (
        // https://github.com/kubeflow/mpi-operator/tree/v0.8.0/manifests/base
        "kubeflow.org_mpijobs.yaml",
        "kubeflow.org/v2beta1/namespaces/default/mpijobs",
        "mpijob/mpijob.yaml",
        &[
            ("slotsPerWorker: 8", "slotsPerWorker: \"8\"", "spec.slotsPerWorker"),
            ("cleanPodPolicy", "cleanPods", "spec.runPolicy.cleanPods"),
        ],
    ),
    (
        // https://github.com/ray-project/kuberay/tree/v1.7.0/ray-operator/config/crd/bases
        "ray.io_rayclusters.yaml",
        "ray.io/v1/namespaces/default/rayclusters",
        "kuberay/raycluster.yaml",
        &[
            ("rayStartParams", "startParams", "spec.headGroupSpec.startParams"),
            ("rayVersion: 2.60.0", "rayVersion: 2", "spec.rayVersion"),
        ],
    ),
    (
        // https://github.com/kubeflow/trainer/tree/v2.3.0/manifests/base/crds
        "trainer.kubeflow.org_clustertrainingruntimes.yaml",
        "trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
        "trainjob/runtime.yaml",
        &[
            ("numNodes: 2", "numNodes: two", "spec.mlPolicy.numNodes"),
            ("replicatedJobs", "replicas", "spec.template.spec.replicas"),
        ],
    ),
    (
        "trainer.kubeflow.org_trainjobs.yaml",
        "trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
        "trainjob/trainjob.yaml",
        &[
            ("args:", "arguments:", "spec.trainer.arguments"),
            ("numNodes: 4", "numNodes: four", "spec.trainer.numNodes"),
        ],
    ),
];

/// The server, and the etcd behind it. Both end when this value is dropped.
struct Server {
    processes: Vec<Child>,
    folder: tempfile::TempDir,
    address: String,
}

impl Server {
    fn start() -> Server {
        let mut setup = Command::new(repository("tests/examples/admission/setup.sh"));
        let setup = setup.arg("server").stderr(Stdio::inherit()).output().unwrap();
        assert!(setup.status.success(), "tests/examples/admission/setup.sh fails (see above)");
        let said = String::from_utf8(setup.stdout).unwrap();
        let pairs: Vec<(String, String)> = said
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let [client, peer, port] = [(); 3].map(|()| free_port());
        let [client, peer] = [client, peer].map(|port| format!("http://127.0.0.1:{port}"));
        let mut etcd = Command::new(value(&pairs, "ETCD"));
        etcd.arg("--data-dir").arg(folder.path().join("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}")]);
        let mut server = Command::new(value(&pairs, "SERVER"));
        server.args([&client, &port.to_string()]).arg(folder.path());
        let mut started =
            Server { processes: Vec::new(), address: format!("https://127.0.0.1:{port}/apis"), folder };
        for (mut command, name) in [(etcd, "etcd.log"), (server, "server.log")] {
            let log = fs::File::create(started.at(name)).unwrap();
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            started.processes.push(command.spawn().unwrap());
        }
        // Without core types, the server is never what it calls ready.
        let ready = format!("{}/{DEFINED}", started.address);
        poll_until("the server is ready", || {
            for process in &mut started.processes {
                let ended = process.try_wait().unwrap();
                let log = |name| fs::read_to_string(started.folder.path().join(name)).unwrap();
                assert!(ended.is_none(), "{ended:?}: {}{}", log("etcd.log"), log("server.log"));
            }
            (answer(&[&ready], "").0 == 200).then_some(())
        });
        started
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the status code, and the answer.
    fn create(&self, path: &str, content: &str, text: &str) -> (u16, String) {
        let address = format!("{}/{path}?fieldValidation=Strict", self.address);
        let kind = format!("Content-Type: {content}");
        answer(&["--request", "POST", "--header", &kind, "--data-binary", "@-", &address], text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn answer(arguments: &[&str], input: &str) -> (u16, String) {
    let mut curl = Command::new("curl");
    // The certificate is one that the server has just made.
    curl.args(["--silent", "--insecure", "--write-out", "\n%{http_code}"]).args(arguments);
    let mut curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("curl is in the PATH");
    curl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = String::from_utf8(curl.wait_with_output().unwrap().stdout).unwrap();
    let (text, code) = output.rsplit_once('\n').unwrap();
    (code.parse().unwrap(), text.to_owned())
}

#[test]
#[ignore = "make test-custom: needs 3 GB of packages, and the operators' definitions"]
fn the_operators_definitions_accept_each_resource_and_refuse_mistakes() {
    let definitions = std::env::var_os(DEFINITIONS).expect(DEFINITIONS);
    let all = manifests().expect("the manifests can be read");
    let document = |manifest: &str| -> Value {
        let path = Path::new("examples").join(manifest);
        let found = all.iter().find(|found| Path::new(&found.path).ends_with(&path));
        found.unwrap_or_else(|| panic!("there is no {manifest}")).documents[0].clone()
    };
    let server = Server::start();
    for (file, path, manifest, mistakes) in RESOURCES {
        let definition = fs::read_to_string(Path::new(&definitions).join(file)).expect(file);
        let (code, said) = server.create(DEFINED, "application/yaml", &definition);
        assert_eq!(code, 201, "{file}: {said}");
        poll_until("the server serves the resource", || {
            (answer(&[&format!("{}/{path}", server.address)], "").0 == 200).then_some(())
        });
        let text = fs::read_to_string(repository("examples").join(manifest)).unwrap();
        for (right, wrong, field) in mistakes {
            assert!(text.contains(right), "{manifest} has no {right}");
            let (code, said) = server.create(path, "application/yaml", &text.replace(right, wrong));
            assert!([400, 422].contains(&code) && said.contains(field), "{manifest}, {wrong}: {code} {said}");
        }
        let (code, said) = server.create(path, "application/json", &document(manifest).to_string());
        assert_eq!(code, 201, "{manifest}: {said}");
    }
}
