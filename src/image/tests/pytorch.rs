//! Tests of which NCCL PyTorch takes.

use super::*;

#[test]
fn torch_takes_nccl_in_the_loaders_order() {
    let root = Root::new();
    root.debian("2.21.5");
    root.wheel(SITE, "2.20.5", "2.20.5");
    root.file("opt/nccl/libnccl.so.2", nccl("2.27.3"));
    let origin = Some("$ORIGIN/../../nvidia/nccl/lib:${ORIGIN}:$LIB/x");
    let needed = &["libc10.so", "libnccl.so.2"];
    let job = |library: fake::FakeLibrary, path: &str| {
        root.torch(SITE, &fake::FakeLibrary { needed, ..library });
        let (image, errors) = root.read([("LD_LIBRARY_PATH", path)]);
        assert_eq!(errors, [""; 0]);
        let torch = image.torch.as_ref().unwrap();
        assert_eq!((torch.version.as_deref(), torch.linkage), (Some("2.4.0+cu121"), Linkage::Dynamic));
        assert_eq!(torch.path, Path::new("/usr/local/lib/python3.10/dist-packages/torch"));
        image.nccl_of_the_job().unwrap().version.clone().unwrap()
    };
    let rpath = || fake::FakeLibrary { rpath: origin, ..Default::default() };
    let runpath = || fake::FakeLibrary { runpath: origin, ..Default::default() };
    let multiarch = format!("/{MULTIARCH}");
    let both = || fake::FakeLibrary { rpath: Some(&multiarch), runpath: origin, ..Default::default() };
    assert_eq!(job(rpath(), ""), "2.20.5");
    assert_eq!(job(rpath(), "/opt/nccl"), "2.20.5");
    assert_eq!(job(runpath(), ""), "2.20.5");
    assert_eq!(job(runpath(), "/opt/nccl"), "2.27.3");
    // The loader ignores the RPATH if there is a RUNPATH.
    assert_eq!(job(both(), ""), "2.20.5");
    assert_eq!(job(fake::FakeLibrary::default(), ""), "2.21.5");
    assert_eq!(job(fake::FakeLibrary::default(), "/opt/nccl"), "2.27.3");

    // A preloaded library is loaded before any search.
    root.torch(SITE, &fake::FakeLibrary { needed, ..rpath() });
    for preload in ["/opt/nccl/libnccl.so.2", "libnccl.so.2"] {
        let (image, _) = root.read([("LD_LIBRARY_PATH", "/opt/nccl"), ("LD_PRELOAD", preload)]);
        assert_eq!(shown(&image).1, Some("2.27.3"), "{preload}");
    }
}

#[test]
fn an_nccl_that_only_torchs_rpath_leads_to_is_listed() {
    let root = Root::new();
    let site = "opt/conda/lib/python3.11/site-packages";
    root.file("opt/conda/lib/libnccl.so.2.23.4", nccl("2.23.4"));
    root.link("libnccl.so.2.23.4", "opt/conda/lib/libnccl.so.2");
    let needed = &["libnccl.so.2"];
    root.torch(site, &fake::FakeLibrary { needed, rpath: Some("$ORIGIN/../../../.."), ..Default::default() });
    let (image, _) = root.read([]);
    assert_eq!(
        shown(&image),
        (vec![format!("2.23.4 TorchRpath /{site}/torch/lib/../../../../libnccl.so.2")], Some("2.23.4"))
    );
    // If PyTorch's NCCL is removed, PyTorch has none, even if the image contains another NCCL.
    fs::remove_file(root.path("opt/conda/lib/libnccl.so.2")).unwrap();
    root.wheel(SITE, "2.20.5", "2.20.5");
    let (image, _) = root.read([]);
    assert_eq!((image.nccl.len(), image.nccl_of_the_job()), (1, None));
}

#[test]
fn torch_may_have_nccl_in_itself_or_none_at_all() {
    let root = Root::new();
    root.debian("2.21.5");
    let texts = b"a+b\0NCCL version \0NCCL version 2.14.3+cuda11.7\0";
    root.torch(SITE, &fake::FakeLibrary { needed: &["libcudart.so.11.0"], texts, ..Default::default() });
    let (image, _) = root.read([]);
    let torch = image.torch.as_ref().unwrap();
    assert_eq!((torch.linkage, shown(&image).1), (Linkage::Static, Some("2.14.3")));
    assert!(image.nccl_of_the_job().unwrap().is_reached(Way::TorchStatic));
    assert_eq!(image.nccl_versions(), ["2.21.5", "2.14.3"]);

    // In an older wheel, the second part of the library contains NCCL.
    root.torch(SITE, &fake::FakeLibrary::default());
    assert_eq!(root.read([]).0.torch.unwrap().linkage, Linkage::Unknown);
    let library = fake::FakeLibrary { texts, ..Default::default() };
    root.file(&format!("{SITE}/torch/lib/libtorch_cuda_cpp.so"), library.bytes());
    assert_eq!(shown(&root.read([]).0).1, Some("2.14.3"));
    fs::remove_file(root.path(&format!("{SITE}/torch/lib/libtorch_cuda_cpp.so"))).unwrap();

    // If the library is broken, the job's NCCL is unknown.
    root.file(&format!("{SITE}/torch/lib/libtorch_cuda.so"), "");
    let (image, errors) = root.read([]);
    assert_eq!((image.torch.as_ref().unwrap().linkage, image.nccl_of_the_job()), (Linkage::Unknown, None));
    assert_eq!(errors, [format!("/{SITE}/torch/lib/libtorch_cuda.so: it is not a library")]);

    // If PyTorch has no CUDA, the NCCL that the loader finds may serve another program.
    fs::remove_file(root.path(&format!("{SITE}/torch/lib/libtorch_cuda.so"))).unwrap();
    fs::remove_file(root.path(&format!("{SITE}/torch/version.py"))).unwrap();
    root.file(&format!("{SITE}/torch-2.4.1+cpu.dist-info/RECORD"), "");
    let (image, _) = root.read([]);
    let torch = image.torch.as_ref().unwrap();
    assert_eq!((torch.version.as_deref(), torch.linkage), (Some("2.4.1+cpu"), Linkage::None));
    assert_eq!(shown(&image).1, Some("2.21.5"));
}
