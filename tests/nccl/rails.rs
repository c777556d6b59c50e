//! Tests how NCCL reads ports, rails, and planes in `NCCL_IB_HCA`, version by version.

use rdma_init::facts::rdma::Hca;

use super::driver::Nccl;
use super::libibverbs::in_image_of_driver;
use super::model::{Environment, case, observed, predicted, version};
use crate::support::nccl::some;

#[test]
fn what_is_behind_a_name_selects_what_the_model_says() {
    let mut facts = in_image_of_driver(&[], &[]);
    facts.image = None;
    let lists = [
        ("=mlx5_1:1:0:0,mlx5_2:1:1:0", 2),
        ("=mlx5_1:1:0", 1),
        ("=mlx5_1:2:0:0", 0),
        ("=mlx5_1:1:0:0:9", 1),
        ("^=mlx5_1:1:3:4", 1),
        ("mlx5_:1:x:y", 2),
    ];
    let environment = |list: &str| -> Environment { vec![("NCCL_IB_HCA".to_owned(), list.to_owned())] };
    let mut cases: Vec<_> = lists.iter().map(|(list, _)| case(&facts, &environment(list))).collect();
    // Before 2.30, an empty port means port 0.
    let empty = "=mlx5_1::0:0,mlx5_2:";
    cases.push(case(&facts, &environment(empty)));
    for library in some(&["2.28.9", "2.30.7"]) {
        let outcomes = Nccl::start(&library).run(&cases);
        let with_empty = (empty, if library.is_at_least("2.30") { 2 } else { 0 });
        for ((list, ports), outcome) in lists.iter().chain([&with_empty]).zip(&outcomes) {
            let name = format!("NCCL {} with {list}", library.version);
            let found = observed(outcome).ports;
            assert_eq!(found.len(), *ports, "{name}: {}", outcome.log);
            assert_eq!(predicted(&facts, &environment(list), version(&library)).ports, found, "{name}");
        }
    }
}

/// Asks for the result of NCCL's own initialization: the list's planes decide whether it uses any HCA.
#[test]
fn planes_end_the_transport_as_the_model_says() {
    let mut facts = in_image_of_driver(&[], &[]);
    facts.image = None;
    let like = facts.rdma[0].clone();
    let hca = |number: usize| Hca { name: format!("mlx5_{number}"), ..like.clone() };
    facts.rdma = (1..=16).map(hca).collect();
    let planes = |planes: &[i64]| -> Environment {
        let entries = planes.iter().enumerate();
        let entries: Vec<String> =
            entries.map(|(place, plane)| format!("mlx5_{}:1:0:{plane}", place + 1)).collect();
        vec![("NCCL_IB_HCA".to_owned(), format!("={}", entries.join(",")))]
    };
    let counted = |count: i64| (0..count).collect::<Vec<i64>>();
    let lists = [
        vec![-1],
        vec![-2],
        vec![16383],
        vec![16384],
        vec![32768, 0],
        counted(10),
        counted(11),
        counted(12),
        counted(13),
        counted(16),
        vec![7; 16],
    ];
    let cases: Vec<_> = lists.iter().map(|list| case(&facts, &planes(list))).collect();
    for library in some(&["2.30.7"]) {
        for (list, outcome) in lists.iter().zip(&Nccl::start(&library).run(&cases)) {
            let (found, wanted) = (observed(outcome), predicted(&facts, &planes(list), version(&library)));
            assert_eq!(found.ports, wanted.ports, "NCCL {} with {list:?}: {}", library.version, outcome.log);
        }
    }
}
