//! Tests that no example is omitted.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::repository;

/// Each directory of examples/, its files, and the module that tests them. In addition, manifests.rs and
/// pods.rs test all manifests, images.rs all Dockerfiles, and scripts.rs all scripts.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("ack-arena", &["submit.sh"]),                                       // arena.rs
    ("acs-type1", &["deployment.yaml"]),                                 // decided.rs
    ("acs-type2", &["deployment.yaml"]),                                 // decided.rs
    ("apptainer", &["train.sh"]),                                        // host_side.rs
    ("cce-pytorchjob", &["pytorchjob.yaml"]),                            // decided.rs
    ("docker-init", &["compose.yml", "containers.conf", "daemon.json"]), // daemon.rs
    ("dockerfile", &["Dockerfile", "entrypoint.Dockerfile"]),            // images.rs
    ("init-container", &["pod.yaml"]),                                   // pods.rs
    ("jobset", &["jobset.yaml"]),                                        // pods.rs
    ("kuberay", &["raycluster.yaml"]),                                   // pods.rs
    ("kubernetes-policy", &["policy.yaml"]),                             // admission.rs
    ("kustomize", &["kustomization.yml", "rdma-init.yml"]),              // kustomize.rs
    ("leaderworkerset", &["leaderworkerset.yaml"]),                      // pods.rs
    ("mpijob", &["Dockerfile", "mpijob.yaml"]),                          // mpi.rs
    ("pai-dlc", &["Dockerfile", "command.sh"]),                          // pai.rs
    ("profile", &["site.toml"]),                                         // profile.rs
    // prometheus.rs and dashboard.rs
    ("prometheus", &["alerts.yml", "alerts_test.yml", "dashboard.json"]),
    ("ray-vllm", &["vllm.yaml"]),                             // pods.rs
    ("slurm-prolog", &["50-rdma-init.sh", "task-prolog.sh"]), // host_side.rs
    ("slurm-pyxis", &["train.sbatch"]),                       // slurm.rs
    ("startup-probe", &["pod.yaml"]),                         // probes.rs
    ("torchrun", &["Dockerfile", "run.sh"]),                  // torchrun.rs
    ("trainjob", &["runtime.yaml", "trainjob.yaml"]),         // pods.rs
];

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Returns the paths of all example files whose names end in one of these ways.
pub fn files(ends: &[&str]) -> Vec<PathBuf> {
    let all = EXAMPLES.iter().flat_map(|(folder, files)| files.iter().map(move |file| (folder, file)));
    let these = all.filter(|(_, file)| ends.iter().any(|end| file.ends_with(end)));
    these.map(|(folder, file)| Path::new("examples").join(folder).join(file)).collect()
}

#[test]
fn every_file_is_known_and_every_folder_explained() {
    let index = fs::read_to_string(repository("examples/README.md")).unwrap();
    let folders: Vec<_> = EXAMPLES.iter().map(|(folder, _)| *folder).chain(["README.md"]).collect();
    let mut expected = folders.clone();
    expected.sort_unstable();
    assert_eq!(names(&repository("examples")), expected);
    for (folder, files) in EXAMPLES {
        let mut files = [*files, &["README.md"]].concat();
        files.sort_unstable();
        assert_eq!(names(&repository("examples").join(folder)), files, "{folder}");
        assert!(index.contains(&format!("]({folder})")), "examples/README.md does not link {folder}");
    }
}

#[test]
fn every_dockerfile_is_built() {
    let docker = ["Dockerfile", "dist", "example.Dockerfile", "image.sh", "scratch.Dockerfile"];
    assert_eq!(names(&repository("docker")), docker);
    let built: Vec<_> = super::images::EXAMPLES.iter().map(|(path, _)| PathBuf::from(path)).collect();
    assert_eq!(built, files(&["Dockerfile"]));
}
