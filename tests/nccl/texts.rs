//! Tests how NCCL reads texts: conf files, integers, distances.

use fastrand::Rng;
use rdma_init::libraries::nccl::{conf, level, number};

use super::case::{Ask, Case};
use super::driver::Nccl;
use super::host::Host;
use super::model::version;
use crate::support::nccl::some;

const CASES: usize = 300;

fn text(random: &mut Rng, pieces: &[&str], most: usize) -> String {
    (0..random.usize(..most)).map(|_| pieces[random.usize(..pieces.len())]).collect()
}

#[test]
fn conf_files_set_what_the_model_says() {
    let names = ["A", "B", " A", "A ", "export A", "#A", "\tB", "\"A\"", "A\r"].map(str::to_owned);
    let pieces = [
        "A",
        "B",
        "=",
        "=",
        "=",
        "\n",
        "\n",
        "\n",
        " ",
        "#",
        "export ",
        "\t",
        "\"",
        "\r\n",
        "1",
        "mlx5_1,mlx5_2",
        "\u{e9}",
        "==",
        "# comment",
    ];
    let mut random = Rng::with_seed(7);
    let files: Vec<String> = (0..CASES)
        .map(|number| match number {
            0 => format!("A={}\nB={}", "x".repeat(1022), "y".repeat(1024)),
            1 => format!("A={}B=1\n", "x".repeat(4093)),
            2 => format!("A={}\r\nB=2\r", "x".repeat(5000)),
            _ => text(&mut random, &pieces, 30),
        })
        .collect();
    let cases: Vec<Case> = files
        .iter()
        .map(|text| Case {
            host: Host {
                files: vec![("/etc/nccl.conf".to_owned(), text.as_bytes().to_vec())],
                ..Host::default()
            },
            environment: Vec::new(),
            asks: vec![Ask::Conf(names.to_vec())],
        })
        .collect();
    for library in some(&["2.25.1", "2.26.2", "2.28.9", "2.30.7"]) {
        let outcomes = Nccl::start(&library).run(&cases);
        for (text, outcome) in files.iter().zip(outcomes) {
            let lines = conf::parse(text, version(&library));
            let value =
                |name: &String| lines.iter().find(|line| line.key == *name).map(|line| line.value.clone());
            let predicted: Vec<_> = names.iter().map(value).collect();
            let observed: Vec<_> = outcome
                .conf
                .iter()
                .map(|value| value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned()))
                .collect();
            assert_eq!(predicted, observed, "NCCL {} with {text:?}", library.version);
        }
    }
}

#[test]
fn integers_are_what_the_model_says() {
    let pieces =
        ["0", "1", "9", "7", "x", "X", "-", "+", " ", "a", "f", "\t", "s", "99999999999", "0x", "\n"];
    let mut random = Rng::with_seed(8);
    let texts: Vec<String> = (0..CASES).map(|_| text(&mut random, &pieces, 6)).collect();
    let ask = |text: &String| Case {
        host: Host::default(),
        environment: vec![("NCCL_IB_TC".to_owned(), text.clone())],
        asks: vec![Ask::Param { name: "NCCL_IB_TC".to_owned(), default: 4242 }],
    };
    let cases: Vec<Case> = texts.iter().map(ask).collect();
    for library in some(&["2.30.7"]) {
        let outcomes = Nccl::start(&library).run(&cases);
        for (text, outcome) in texts.iter().zip(outcomes) {
            let predicted = number::integer(text, version(&library)).unwrap_or(4242);
            assert_eq!(outcome.params, [predicted], "NCCL {} with {text:?}", library.version);
        }
    }
}

#[test]
fn levels_are_what_the_model_says() {
    let texts = [
        "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS", "pix", "",
        " PIX", "0", "1", "2", "3", "4", "5", "6", "99", "-1", "0x3", "010", "2x", "x2", "PIX ",
    ];
    let ask = |text: &&str| Case {
        host: Host::default(),
        environment: vec![("NCCL_NET_GDR_LEVEL".to_owned(), (*text).to_owned())],
        asks: vec![Ask::Level { name: "NCCL_NET_GDR_LEVEL".to_owned(), disable: None }],
    };
    let cases: Vec<Case> = texts.iter().map(ask).collect();
    for library in some(&["2.25.1", "2.26.2", "2.27.7"]) {
        let outcomes = Nccl::start(&library).run(&cases);
        for (text, outcome) in texts.iter().zip(outcomes) {
            let predicted = level::parse(text, version(&library));
            let observed = outcome.levels[0].name.as_deref();
            assert_eq!(predicted, observed, "NCCL {} with {text:?}", library.version);
        }
    }
}
