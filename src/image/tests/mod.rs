//! Tests with images that are laid out as directories.

use std::fs;
use std::path::Path;

use super::architecture::{ForeignKind, OURS};
use super::cache::tests::{after_old, cache};
use super::fake::{self, nccl};
use super::library::{MissingLibrary, VersionFrom};
use super::packages::OwnLibibverbs;
use super::*;
use crate::facts::environment::Environment;
use crate::facts::fake_root::FakeRoot;
use crate::facts::settings::UserSetting;
use crate::finding::Source;
use crate::libraries::is_package;

mod architecture;
mod fabric;
mod mutated;
mod named_libraries;
mod pytorch;
mod search;
mod sites;
mod start;
mod ucx;

/// Debian's library directory for this program's architecture.
#[cfg(target_arch = "x86_64")]
const MULTIARCH: &str = "usr/lib/x86_64-linux-gnu";
#[cfg(target_arch = "aarch64")]
const MULTIARCH: &str = "usr/lib/aarch64-linux-gnu";
const SITE: &str = "usr/local/lib/python3.10/dist-packages";

struct Root(FakeRoot);

impl std::ops::Deref for Root {
    type Target = FakeRoot;

    fn deref(&self) -> &FakeRoot {
        &self.0
    }
}

impl Root {
    /// Returns a root directory like that of Debian's images.
    fn new() -> Root {
        let root = Root(FakeRoot::new());
        root.folder(MULTIARCH);
        root.link("usr/lib", "lib");
        root
    }

    fn cache(&self, entries: &[(&str, &str)]) {
        let entries: Vec<_> =
            entries.iter().map(|(name, path)| (OURS.cache_flags, 0, *name, *path)).collect();
        self.file("etc/ld.so.cache", cache(&entries));
    }

    /// Installs NCCL like Debian's package.
    fn debian(&self, version: &str) {
        self.file(&format!("{MULTIARCH}/libnccl.so.{version}"), nccl(version));
        self.link(format!("libnccl.so.{version}"), &format!("{MULTIARCH}/libnccl.so.2"));
    }

    /// Installs NCCL's wheel of `version`, whose library has the version `in_library`.
    fn wheel(&self, site: &str, version: &str, in_library: &str) {
        let library = nccl(in_library);
        let size = nccl(version).len();
        self.file(&format!("{site}/nvidia/nccl/lib/libnccl.so.2"), library);
        self.file(
            &format!("{site}/nvidia_nccl_cu12-{version}.dist-info/RECORD"),
            format!("nvidia/__init__.py,,0\nnvidia/nccl/lib/libnccl.so.2,sha256=x,{size}\n"),
        );
    }

    fn torch(&self, site: &str, library: &fake::FakeLibrary) {
        self.file(&format!("{site}/torch/__init__.py"), "");
        self.file(&format!("{site}/torch/version.py"), "__all__ = ['x']\n__version__ = '2.4.0+cu121'\n");
        self.file(&format!("{site}/torch/lib/libtorch_cuda.so"), library.bytes());
    }

    fn read<const N: usize>(&self, environment: [(&str, &str); N]) -> (Image, Vec<String>) {
        let reader = self.reader();
        let set = |(name, value): &(&str, &str)| UserSetting::new(name, value, Source::Environment);
        let settings = Settings(environment.iter().map(set).collect());
        let environment = Environment::from(environment);
        let start = Start { folder: Some(Path::new("/job")), ..Start::from(&environment) };
        let image = read(&reader, start, Some(is_package), &settings, &["bnxt_re", "irdma", "efa", "ionic"]);
        // Parsing the JSON document returns exactly what was read.
        let json = serde_json::to_string(&image).unwrap();
        assert_eq!(serde_json::from_str::<Image>(&json).unwrap(), image);
        (
            image,
            reader
                .into_unreadable()
                .into_iter()
                .map(|u| format!("{}: {}", u.path.display(), u.error))
                .collect(),
        )
    }
}

/// Returns `version: how, how; ...` for every library, and the version of the one that the job uses.
fn shown(image: &Image) -> (Vec<String>, Option<&str>) {
    let each = image.nccl.iter().map(|library| {
        let reached: Vec<String> =
            library.reached.iter().map(|r| format!("{:?} {}", r.way, r.path.display())).collect();
        format!("{} {}", library.version.as_deref().unwrap_or("?"), reached.join(", "))
    });
    (each.collect(), image.nccl_of_the_job().and_then(|library| library.version.as_deref()))
}

fn only_version(image: &Image) -> (Option<&str>, Option<VersionFrom>) {
    assert_eq!(image.nccl.len(), 1, "{:#?}", image.nccl);
    (image.nccl[0].version.as_deref(), image.nccl[0].version_from)
}

/// Returns a libibverbs whose texts name the directory of its providers.
fn verbs(folder: &str, abi: u32) -> Vec<u8> {
    let texts = format!("lib%s-rdmav{abi}.so\0%s: no driver\0/{folder}/lib%s-rdmav{abi}.so\0");
    fake::FakeLibrary { texts: texts.as_bytes(), ..Default::default() }.bytes()
}

#[test]
fn an_empty_image_has_nothing_and_nothing_is_wrong_with_it() {
    let root = Root(FakeRoot::new());
    let usual = [
        ("PATH", "/usr/bin:/bin"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64::relative"),
        ("HOME", "/root"),
    ];
    assert_eq!(root.read(usual), (Image::default(), Vec::new()));
}
