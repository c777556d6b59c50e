//! Tests of the dynamic loader's search: its cache, its directories, and files that are not libraries.

use super::*;

#[test]
fn each_way_is_found_and_a_file_is_listed_once() {
    let root = Root::new();
    root.debian("2.21.5");
    root.file("opt/nccl/lib/libnccl.so.2.20.3", nccl("2.20.3"));
    // An absolute link resolves to a path below the root.
    root.link("/opt/nccl/lib/libnccl.so.2.20.3", "opt/nccl/lib/libnccl.so.2");
    let of_debian = format!("/lib/{}/libnccl.so.2", OURS.folder);
    root.cache(&[("libnccl.so.2", &of_debian), ("libnccl.so.2", "/opt/nccl/lib/libnccl.so.2")]);
    root.wheel(SITE, "2.19.3", "2.19.3");
    let (image, errors) = root.read([]);
    let (found, job) = shown(&image);
    assert_eq!(
        found,
        [
            &*format!("2.21.5 Cache {of_debian}, Standard {of_debian}, Standard {of_debian}.21.5"),
            "2.20.3 Cache /opt/nccl/lib/libnccl.so.2",
            "2.19.3 SitePackages /usr/local/lib/python3.10/dist-packages/nvidia/nccl/lib/libnccl.so.2",
        ]
    );
    assert_eq!(job, Some("2.21.5"));
    assert_eq!(image.nccl[0].path, Path::new("/").join(MULTIARCH).join("libnccl.so.2.21.5"));
    assert_eq!(image.nccl[0].loads_as, ["libnccl.so.2", "libnccl.so.2.21.5"]);
    assert_eq!(image.nccl[1].loads_as, [""; 0]);
    assert_eq!(image.nccl_versions(), ["2.21.5", "2.20.3", "2.19.3"]);
    assert_eq!(errors, [""; 0]);

    // The directories of LD_LIBRARY_PATH come before the cache, in their order.
    let folders = format!("/nowhere:/opt/nccl/lib:/{MULTIARCH}");
    let (image, _) = root.read([("LD_LIBRARY_PATH", &folders)]);
    let (found, job) = shown(&image);
    assert!(found[0].starts_with("2.20.3 LdLibraryPath /opt/nccl/lib/libnccl.so.2, "), "{found:#?}");
    assert_eq!(job, Some("2.20.3"));
    // LD_PRELOAD comes first of all.
    let path = format!("/{MULTIARCH}/libnccl.so.2.21.5");
    let (image, _) = root.read([("LD_LIBRARY_PATH", "/opt/nccl/lib"), ("LD_PRELOAD", &path)]);
    assert_eq!(shown(&image).1, Some("2.21.5"));
}

#[test]
fn a_cache_after_an_old_one_counts_and_none_is_no_fault() {
    let root = Root::new();
    root.file("opt/nccl/libnccl.so.2", nccl("2.27.3"));
    let entry = (OURS.cache_flags, 0, "libnccl.so.2", "/opt/nccl/libnccl.so.2");
    root.file("etc/ld.so.cache", after_old(3, &cache(&[entry])));
    let (image, _) = root.read([]);
    assert_eq!(only_version(&image), (Some("2.27.3"), Some(VersionFrom::Text)));
    assert_eq!(image.nccl_of_the_job(), Some(&image.nccl[0]));
    // musl has no cache.
    fs::remove_file(root.path("etc/ld.so.cache")).unwrap();
    root.debian("2.27.3");
    assert_eq!(shown(&root.read([]).0).1, Some("2.27.3"));
}

#[test]
fn invalid_caches_are_reported() {
    let root = Root::new();
    root.debian("2.21.5");
    let none = "it is not a cache that the dynamic loader would use";
    for (content, error) in [
        (b"garbage".to_vec(), none),
        (Vec::new(), none),
        (vec![0; 8 * 1024 * 1024 + 1], "it is longer than 8388608 bytes"),
    ] {
        root.file("etc/ld.so.cache", content);
        let (image, errors) = root.read([]);
        assert_eq!(errors, [format!("/etc/ld.so.cache: {error}")]);
        assert_eq!(image.nccl.len(), 1);
    }
    fs::remove_file(root.path("etc/ld.so.cache")).unwrap();
    nix::unistd::mkfifo(&root.path("etc/ld.so.cache"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(root.read([]).1, ["/etc/ld.so.cache: it is not a regular file"]);
}

#[test]
fn files_that_are_no_libraries_are_passed_over() {
    let root = Root::new();
    let put = |folder: &str, content: &[u8]| root.file(&format!("opt/{folder}/libnccl.so.2"), content);
    let mut elf32 = fake::empty();
    elf32[4] = 1;
    let mut big_endian = fake::empty();
    big_endian[5] = 2;
    put("32", &elf32);
    put("be", &big_endian);
    put("short", &nccl("2.1.1")[..40]);
    put("text", b"GROUP ( libnccl.so.2.21.5 )");
    root.link("/dev/nowhere", "opt/broken/libnccl.so.2");
    root.folder("opt/fifo");
    nix::unistd::mkfifo(&root.path("opt/fifo/libnccl.so.2"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // This file contains only a library's header: it has no texts, so no version.
    put("cut", &fake::empty()[..64]);
    put("good", &nccl("2.21.5"));
    let path =
        ["32", "be", "short", "text", "broken", "fifo", "cut", "good"].map(|f| format!("/opt/{f}")).join(":");
    let (image, errors) = root.read([("LD_LIBRARY_PATH", &path)]);
    assert_eq!(
        errors,
        [
            "/opt/short/libnccl.so.2: it is not a library",
            "/opt/text/libnccl.so.2: it is not a library",
            "/opt/fifo/libnccl.so.2: it is not a regular file",
        ]
    );
    let versions: Vec<_> = image.nccl.iter().map(|library| library.version.as_deref()).collect();
    assert_eq!(versions, [None, Some("2.21.5")]);
}
