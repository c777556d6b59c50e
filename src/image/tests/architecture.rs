//! Tests of images that contain libraries and programs of the other architecture.

use super::*;

fn turned(mut bytes: Vec<u8>) -> Vec<u8> {
    fake::turn(&mut bytes);
    bytes
}

/// Returns `kind path` for each foreign file.
fn foreign(image: &Image) -> Vec<String> {
    let other = if OURS.name == "x86_64" { "aarch64" } else { "x86_64" };
    let shown = |foreign: &Foreign| {
        assert_eq!((foreign.architecture.as_str(), foreign.wanted.as_str()), (other, OURS.name));
        format!("{:?} {}", foreign.kind, foreign.path.display())
    };
    image.foreign.iter().map(shown).collect()
}

#[test]
fn libraries_that_the_loader_passes_over_are_noted_once() {
    let root = Root::new();
    root.file("opt/nccl/libnccl.so.2.21.5", turned(nccl("2.21.5")));
    root.link("libnccl.so.2.21.5", "opt/nccl/libnccl.so.2");
    root.file("opt/nccl/librccl.so.1", turned(fake::empty()));
    root.file("opt/nccl/libibverbs.so.1", turned(fake::empty()));
    // Nothing uses the architecture of these files.
    root.file("opt/nccl/librdmacm.so.1", turned(fake::empty()));
    let (image, errors) = root.read([("LD_LIBRARY_PATH", "/opt/nccl")]);
    assert_eq!(
        foreign(&image),
        [
            "Nccl /opt/nccl/libnccl.so.2.21.5",
            "Rccl /opt/nccl/librccl.so.1",
            "Libibverbs /opt/nccl/libibverbs.so.1"
        ]
    );
    assert!(
        image.nccl.is_empty()
            && image.rccl.is_empty()
            && image.libibverbs.is_empty()
            && image.librdmacm.is_empty()
    );
    assert_eq!(errors, [""; 0]);
}

#[test]
fn a_pytorch_of_the_other_architecture_is_noted_with_its_nccl() {
    let root = Root::new();
    root.wheel(SITE, "2.21.5", "2.21.5");
    let library = format!("{SITE}/nvidia/nccl/lib/libnccl.so.2");
    root.file(&library, turned(nccl("2.21.5")));
    root.torch(SITE, &fake::FakeLibrary { needed: &["libnccl.so.2"], ..Default::default() });
    let torch = format!("{SITE}/torch/lib/libtorch_cuda.so");
    root.file(&torch, turned(fs::read(root.path(&torch)).unwrap()));
    let (image, errors) = root.read([]);
    assert_eq!(foreign(&image), [format!("Nccl /{library}"), format!("Torch /{torch}")]);
    assert_eq!(errors, [""; 0]);
}

#[test]
fn programs_are_those_that_would_be_started() {
    let root = Root::new();
    let environment = Environment::from([("PATH", "/usr/local/bin:/usr/bin")]);
    let read = |command: &str| {
        let reader = root.reader();
        let start = Start { command: Some(command), ..Start::from(&environment) };
        foreign(&read(&reader, start, Some(is_package), &Settings::default(), &[]))
    };
    root.file("usr/bin/python3.11", turned(fake::empty()));
    root.link("python3.11", "usr/bin/python3");
    root.file("usr/bin/train", b"#!/usr/bin/env -S python3 -u\n");
    root.file("usr/bin/sh", fake::empty());
    root.file("usr/bin/start", b"#!/usr/bin/sh\npython3 train.py\n");
    root.file("usr/bin/tool", turned(fake::empty()));
    assert_eq!(read("train"), ["Command /usr/bin/python3.11"]);
    assert_eq!(read("start"), ["Python /usr/bin/python3.11"]);
    assert_eq!(read("/usr/bin/tool"), ["Command /usr/bin/tool", "Python /usr/bin/python3.11"]);
    // Another Python comes first, and missing programs are not judged.
    root.file("usr/local/bin/python3", fake::empty());
    for command in ["train", "start", "missing", ""] {
        assert_eq!(read(command), [""; 0], "{command}");
    }
}

#[test]
fn kinds_of_a_later_version_are_read() {
    let foreign: Foreign = serde_json::from_str(r#"{"kind":"kernel","path":"/x","more":1}"#).unwrap();
    assert_eq!((foreign.kind, foreign.path), (ForeignKind::Other, "/x".into()));
}
