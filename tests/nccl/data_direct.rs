//! Tests HCAs with a Data Direct function: what NCCL uses, and what the model predicts.

use rdma_init::libraries::nccl::data_direct::{GpuPaths, VARIABLE, ways};

use super::case::{Ask, Case};
use super::driver::Nccl;
use super::host::{Address, Hca, Host, Interface, LINK_ETHERNET, PORT_ACTIVE, Port, ROCE_V2, Slot, TypeFile};
use super::model::version;
use crate::support::nccl::some;
use nix::libc;

fn hca(name: &str, address: &str, data_direct: Option<&str>) -> Hca {
    let slot =
        Slot { index: 3, gid: "::ffff:10.1.0.1".parse().unwrap(), file: TypeFile::Text(ROCE_V2.to_owned()) };
    let port =
        Port { number: 1, state: PORT_ACTIVE, link_layer: LINK_ETHERNET, table_size: 8, slots: vec![slot] };
    let path = |address: &str| format!("/sys/devices/pci{}/{address}", &address[..7]);
    Hca {
        name: name.to_owned(),
        pci_path: Some(path(address)),
        data_direct: data_direct.map(path),
        ports: vec![port],
        ..Hca::default()
    }
}

/// Makes a ConnectX-8 with two functions, each with its Data Direct function, and an HCA without one.
fn host() -> Host {
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    let address = Address::Ip("10.0.0.5/16".parse().unwrap());
    Host {
        hcas: vec![
            hca("mlx5_0", "0000:03:00.0", Some("0008:03:00.0")),
            hca("mlx5_1", "0000:03:00.1", Some("0008:04:00.0")),
            hca("mlx5_4", "0002:03:00.0", None),
        ],
        interfaces: vec![Interface { name: "eth0".to_owned(), index: 2, flags, address }],
        ..Host::default()
    }
}

#[test]
fn nccl_offers_the_ways_that_are_predicted() {
    let values = [None, Some("0"), Some("1"), Some("2"), Some("3"), Some("-1"), Some("")];
    let environment = |value: &Option<&str>| -> Vec<(String, String)> {
        value.map(|value| (VARIABLE.to_owned(), value.to_owned())).into_iter().collect()
    };
    let case = |value| Case { host: host(), environment: environment(value), asks: vec![Ask::Ib] };
    let cases: Vec<Case> = values.iter().map(case).collect();
    for library in some(&["2.26.2", "2.27.7", "2.28.9"]) {
        for (value, outcome) in values.iter().zip(Nccl::start(&library).run(&cases)) {
            let place = format!("NCCL {} with {value:?}", library.version);
            let found = outcome.ib.as_ref().unwrap().using.iter().map(|used| used.hca.as_str());
            let mut found: Vec<&str> = found.collect();
            found.sort_unstable();
            let predicted = ways(|name| value.filter(|_| name == VARIABLE), version(&library));
            let wanted: &[&str] = match predicted {
                GpuPaths::Own => &["mlx5_0", "mlx5_1", "mlx5_4"],
                GpuPaths::Function => &["mlx5_0_dma", "mlx5_1_dma", "mlx5_4"],
                GpuPaths::Both => &["mlx5_0", "mlx5_0_dma", "mlx5_1", "mlx5_1_dma", "mlx5_4"],
            };
            assert_eq!(found, wanted, "{place}");
        }
    }
}
