//! Tests which libibverbs NCCL loads if `NCCL_IBVERBS_LIB` names one. The model sees the files as the
//! program's readers find them, and predicts what the library does.

use std::path::Path;
use std::sync::LazyLock;

use rdma_init::facts::environment::Environment as Variables;
use rdma_init::facts::settings::{Settings, UserSetting};
use rdma_init::facts::start::Start;
use rdma_init::facts::{Facts, Reader};
use rdma_init::finding::Source;
use rdma_init::image;
use rdma_init::libraries::nccl::version::READS_IBVERBS_LIB;

use super::driver::Nccl;
use super::model::{Environment, case, observed, predicted, version};
use crate::support::golden::host;
use crate::support::nccl::{driver, some};

const VARIABLE: &str = "NCCL_IBVERBS_LIB";

/// Returns two HCAs in the driver's image, in which the harness's libibverbs is found by its name.
fn facts(value: &str) -> Facts {
    in_image_of_driver(&[(VARIABLE, value)], &[])
}

/// Returns two HCAs in the driver's image, in which the loader also searches these directories.
pub fn in_image_of_driver(set: &[(&str, &str)], folders: &[&Path]) -> Facts {
    static HOST: LazyLock<Facts> = LazyLock::new(|| host("two-roce-hcas").read().facts);
    let mut facts = HOST.clone();
    // The harness's libibverbs shows every HCA without needing a provider.
    facts.rdma.iter_mut().for_each(|hca| hca.driver = Some("of-no-provider".to_owned()));
    let driver = driver();
    let folders = std::iter::once(driver.as_path()).chain(folders.iter().copied());
    let folders = std::env::join_paths(folders).unwrap();
    let variables = Variables::from([("LD_LIBRARY_PATH", folders.to_str().unwrap())]);
    let set = set.iter().map(|(name, value)| UserSetting::new(name, value, Source::Environment));
    let reader = Reader::new(Path::new("/"));
    let image = image::read(&reader, Start::from(&variables), None, &Settings(set.collect()), &[]);
    facts.image = Some(image);
    facts
}

#[test]
fn a_named_libibverbs_is_tried_first_and_only_a_missing_one_falls_back() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("libibverbs-of-ours.so");
    std::fs::copy(driver().join("libibverbs.so.1"), &elsewhere).unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "not a library").unwrap();
    let elsewhere = elsewhere.to_str().unwrap();
    let another = driver().join("libmlx5.so.1");
    let values = [
        (elsewhere, 2),
        ("libibverbs.so.1", 2),
        ("/missing/libibverbs.so.1", 2),
        ("no-such-library.so", 2),
        (text.to_str().unwrap(), 2),
        (another.to_str().unwrap(), 0),
        ("libmlx5.so.1", 0),
        ("", 0),
    ];
    let environment = |value: &str| -> Environment { vec![(VARIABLE.to_owned(), value.to_owned())] };
    let hosts: Vec<Facts> = values.iter().map(|(value, _)| facts(value)).collect();
    let cases: Vec<_> =
        hosts.iter().zip(&values).map(|(facts, (value, _))| case(facts, &environment(value))).collect();
    for library in some(&["2.28.9", "2.30.7"]) {
        let reads_it = version(&library) >= READS_IBVERBS_LIB;
        let outcomes = Nccl::start(&library).run(&cases);
        for ((facts, (value, ports)), outcome) in hosts.iter().zip(&values).zip(&outcomes) {
            let name = format!("NCCL {} with {VARIABLE}={value}", library.version);
            let found = observed(outcome);
            assert_eq!(found.ports.len(), if reads_it { *ports } else { 2 }, "{name}: {}", outcome.log);
            assert_eq!(predicted(facts, &environment(value), version(&library)).ports, found.ports, "{name}");
            let says_so = outcome.log.contains("NCCL_IBVERBS_LIB set by environment to ");
            assert_eq!(says_so, reads_it, "{name}: {}", outcome.log);
        }
    }
}
