//! Tests of what depends on how the command is started.

use super::*;

/// A start reads the image only if it needs it; the commands that print always read it.
#[test]
fn without_an_hca_the_image_is_read_only_when_asked_for() {
    let root = Root::new();
    root.debian("2.21.5");
    let found = |image_in_any_case| {
        let environment = Environment::default();
        let sources = crate::facts::Sources {
            root: &root.path(""),
            start: Start::from(&environment),
            parse_conf: crate::libraries::nccl::conf::assignments,
            is_setting: &|_| false,
            may_write: |_| false,
            is_marker: &|_| false,
            files: &[],
            addresses: || Ok(Vec::new()),
            routing: |_| Ok(Default::default()),
            look_up: |_| Err(String::new()),
            image_in_any_case,
            is_package: Some(is_package),
            rdma_mode: || Err(nix::errno::Errno::EPROTONOSUPPORT),
        };
        crate::facts::read(sources, |_, _| crate::facts::Need::Nothing)
            .image
            .map_or(0, |image| image.nccl.len())
    };
    assert_eq!((found(false), found(true)), (0, 1));
    root.folder("sys/class/infiniband");
    assert_eq!(found(false), 0);
    root.folder("sys/class/infiniband/mlx5_0");
    assert_eq!(found(false), 1);
}

/// Returns the version of the NCCL that a command gets, depending on its first word.
fn for_command(root: &Root, command: &str, environment: &[(&str, &str)]) -> Option<String> {
    let entries: Vec<_> =
        environment.iter().map(|(n, v)| std::ffi::CString::new(format!("{n}={v}")).unwrap()).collect();
    let environment = Environment::new(&entries);
    let folder = Some(Path::new("/app"));
    let start = Start { folder, command: Some(command), ..Start::from(&environment) };
    let image = read(&root.reader(), start, Some(is_package), &Settings::default(), &[]);
    image.nccl_of_the_job()?.version.clone()
}

#[test]
fn the_python_of_the_command_comes_first() {
    let root = Root::new();
    for (name, version) in [("a", "2.21.5"), ("b", "2.27.7")] {
        let site = format!("opt/{name}/lib/python3.11/site-packages");
        root.wheel(&site, version, version);
        let rpath = Some("$ORIGIN/../../nvidia/nccl/lib");
        root.torch(&site, &fake::FakeLibrary { needed: &["libnccl.so.2"], rpath, ..Default::default() });
        root.file(&format!("opt/{name}/pyvenv.cfg"), "home = /usr/bin\n");
        root.file(&format!("opt/{name}/bin/python3"), "");
        root.file(&format!("opt/{name}/bin/torchrun"), format!("#!/opt/{name}/bin/python3\nimport torch\n"));
    }
    root.file("app/train.py", "#!/usr/bin/env -S python3 -u\n");
    root.file("app/run.sh", "#!/bin/sh\nexec python3\n");
    let path = [("PATH", "/opt/a/bin:/usr/bin")];
    for (command, version) in [
        ("python3", "2.21.5"),
        ("/opt/b/bin/python3", "2.27.7"),
        ("/opt/b/bin/torchrun", "2.27.7"),
        ("../opt/b/bin/torchrun", "2.27.7"),
        ("./train.py", "2.21.5"),
        ("./run.sh", "2.21.5"),
        ("no-such-command", "2.21.5"),
        ("", "2.21.5"),
    ] {
        assert_eq!(for_command(&root, command, &path).as_deref(), Some(version), "{command}");
    }
    let other = [("PATH", "/opt/b/bin")];
    assert_eq!(for_command(&root, "/app/train.py", &other).as_deref(), Some("2.27.7"));
}

#[test]
fn an_empty_or_relative_entry_of_the_library_path_is_the_working_folder() {
    let root = Root::new();
    root.debian("2.19.3");
    root.file("app/libnccl.so.2", nccl("2.27.7"));
    root.file("app/lib/libnccl.so.2", nccl("2.30.7"));
    let with = |value| for_command(&root, "true", &[("LD_LIBRARY_PATH", value)]);
    assert_eq!(with("").as_deref(), Some("2.19.3"));
    assert_eq!(with(":/opt").as_deref(), Some("2.27.7"));
    assert_eq!(with("/opt:").as_deref(), Some("2.27.7"));
    assert_eq!(with("lib:").as_deref(), Some("2.30.7"));
    assert_eq!(with("$ORIGIN/lib").as_deref(), Some("2.19.3"));
}
