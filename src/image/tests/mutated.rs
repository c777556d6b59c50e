//! Tests with files that contain arbitrary bytes.

use super::*;

/// Every file whose content the reader reads contains arbitrary bytes.
#[test]
fn mutated_files_do_no_harm() {
    let root = Root::new();
    root.cache(&[("libnccl.so.2", "/opt/libnccl.so.2"), ("libibverbs.so.1", "/opt/libibverbs.so.1")]);
    root.file("opt/libnccl.so.2", nccl("2.21.5"));
    root.file("opt/libibverbs.so.1", verbs("/opt/libibverbs", 34));
    root.file("etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
    root.wheel(SITE, "2.21.5", "2.21.5");
    root.torch(
        SITE,
        &fake::FakeLibrary { needed: &["libnccl.so.2"], rpath: Some("$ORIGIN"), ..Default::default() },
    );
    let files = [
        "etc/ld.so.cache".to_owned(),
        "opt/libnccl.so.2".to_owned(),
        "opt/libibverbs.so.1".to_owned(),
        "etc/libibverbs.d/mlx5.driver".to_owned(),
        format!("{SITE}/torch/lib/libtorch_cuda.so"),
        format!("{SITE}/torch/version.py"),
        format!("{SITE}/nvidia_nccl_cu12-2.21.5.dist-info/RECORD"),
    ];
    let whole: Vec<Vec<u8>> = files.iter().map(|file| fs::read(root.path(file)).unwrap()).collect();
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..2000 {
        let which = random.usize(..files.len());
        let mut bytes = whole[which].clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            // Extreme values are the most likely to break sizes and offsets.
            let any = random.u8(..);
            bytes[at] = random.choice([0, 1, 0x7f, 0x80, 0xff, any]).unwrap();
        }
        if random.u8(..4) == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        root.file(&files[which], bytes);
        root.read([("PATH", "/usr/bin"), ("LD_LIBRARY_PATH", "/opt")]);
        root.file(&files[which], &whole[which]);
    }
}
