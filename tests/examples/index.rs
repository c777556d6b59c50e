//! Makes the image index of both architectures, and reads it as a registry would.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::setup::prepared;
use crate::support::repository;

/// Returns the blob that a descriptor of an OCI layout names.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let (algorithm, digest) = descriptor["digest"].as_str().unwrap().split_once(':').unwrap();
    fs::read(layout.join("blobs").join(algorithm).join(digest)).unwrap()
}

fn document(layout: &Path, descriptor: &Value) -> Value {
    serde_json::from_slice(&blob(layout, descriptor)).unwrap()
}

/// Runs tar, which detects the compression of an archive.
fn tar(options: &[&str], archive: &Path) -> Vec<u8> {
    let output = Command::new("tar").args(options).arg("--file").arg(archive).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// The binaries are not executed here, so two texts can replace them.
#[test]
fn an_index_has_the_binary_of_each_architecture() {
    if prepared("index").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    for architecture in ["x86_64", "aarch64"] {
        let release = target.join(format!("{architecture}-unknown-linux-gnu/release"));
        fs::create_dir_all(&release).unwrap();
        fs::write(release.join("rdma-init"), architecture).unwrap();
    }
    let archive = folder.path().join("index.tar");
    let mut image = Command::new("sh");
    image.arg(repository("docker/image.sh")).arg(format!("oci-archive:{}", archive.display())).arg(&target);
    let made = image.output().unwrap();
    assert!(made.status.success(), "{made:?}");

    let layout = folder.path().join("layout");
    fs::create_dir(&layout).unwrap();
    tar(&["--extract", "--directory", layout.to_str().unwrap()], &archive);
    let top: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let index = document(&layout, &top["manifests"][0]);
    let images = index["manifests"].as_array().unwrap();
    let mut found = Vec::new();
    for image in images {
        let platform = ["os", "architecture"].map(|part| image["platform"][part].as_str().unwrap()).join("/");
        let manifest = document(&layout, image);
        // Docker checks this value as well.
        let configuration = document(&layout, &manifest["config"]);
        assert_eq!(configuration["architecture"], image["platform"]["architecture"]);
        assert_eq!(configuration["config"]["Entrypoint"], serde_json::json!(["/rdma-init"]));
        let [layer] = &manifest["layers"].as_array().unwrap()[..] else { panic!("{manifest}") };
        let file = folder.path().join("layer");
        fs::write(&file, blob(&layout, layer)).unwrap();
        assert_eq!(tar(&["--list"], &file), b"rdma-init\n");
        let binary = String::from_utf8(tar(&["--extract", "--to-stdout"], &file)).unwrap();
        found.push((platform, binary));
    }
    let expected = [("linux/amd64", "x86_64"), ("linux/arm64", "aarch64")];
    assert_eq!(found, expected.map(|(platform, binary)| (platform.to_owned(), binary.to_owned())));
}
