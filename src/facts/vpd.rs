//! The vital product data (VPD) of HCAs, which distinguishes HCAs that connect to NVSwitches from HCAs of a
//! network: `/sys/class/infiniband/*/device/vpd` (`drivers/pci/vpd.c`). Only root may read it.
//!
//! On HGX B200 and B300, NVSwitches are not PCI devices. The host manages them through a ConnectX-7, whose
//! functions look like any other HCA. The VPD of the functions that Fabric Manager uses contains
//! `SMDL=SW_MNG` (NVIDIA Fabric Manager User Guide, "Systems Using Fourth Generation NVSwitches").

use super::gpu::Gpus;
use super::node::Access;
use super::rdma::{Hca, LinkLayer};
use super::reader::Reader;

/// A field in the text of a vendor-specific keyword. The next keyword follows the text directly.
const FIELD: &[u8] = b"SMDL=SW_MNG";

/// In bytes. The VPD of a ConnectX-7 is shorter than 1 KiB.
const MOST: u64 = 4096;

/// The most HCAs to read. The data comes from the device itself, four bytes at a time.
const MOST_HCAS: usize = 32;

/// GPU models whose machines do not manage NVSwitches through an HCA. In machines before HGX B100, NVSwitches
/// are PCI devices; for NVL72, they are in other machines; the last models in this list have none.
const WITHOUT: [&str; 15] = [
    "V100", "A100", "A800", "H100", "H800", "H20", "H200", "GH200", "GB200", "GB300", "GB10", "A10", "L4",
    "L40", "L40S",
];

/// Reads the VPD of the mlx5 InfiniBand HCAs that this container may use, if the machine may have such an
/// HCA.
pub(crate) fn read(reader: &Reader, gpu: &Gpus, hcas: &mut [Hca]) {
    if !may_have_nvswitch_hcas(gpu) {
        return;
    }
    for hca in hcas.iter_mut().filter(|hca| may_lead_to_nvswitches(hca)).take(MOST_HCAS) {
        let data = reader.start_if_readable(format!("/sys/class/infiniband/{}/device/vpd", hca.name), MOST);
        let has_field = |data: Vec<u8>| data.windows(FIELD.len()).any(|window| window == FIELD);
        hca.manages_nvswitches = data.filter(|data| !data.is_empty()).map(has_field);
    }
}

fn may_have_nvswitch_hcas(gpu: &Gpus) -> bool {
    gpu.count.is_some() && gpu.make.is_nvidia() && gpu.model_of_whole(&WITHOUT).is_none()
}

fn may_lead_to_nvswitches(hca: &Hca) -> bool {
    hca.driver.as_deref() == Some("mlx5_core")
        && hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened)
        && hca.ports.iter().any(|port| port.link_layer == LinkLayer::InfiniBand)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::rdma::{Port, Uverbs};

    fn hca(name: &str) -> Hca {
        Hca {
            name: name.to_owned(),
            driver: Some("mlx5_core".to_owned()),
            uverbs: Some(Uverbs::default()),
            ports: vec![Port { link_layer: LinkLayer::InfiniBand, ..Port::default() }],
            ..Hca::default()
        }
    }

    fn gpus(models: &[&str]) -> Gpus {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        Gpus { count: Some(8), models, ..Gpus::default() }
    }

    #[test]
    fn only_hcas_that_may_lead_to_nvswitches_are_asked() {
        let root = FakeRoot::new();
        let names = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6"];
        for name in names {
            let vpd = format!("sys/class/infiniband/{name}/device/vpd");
            let write = |data: &[u8]| root.file(&vpd, data);
            match name {
                "mlx5_0" => write(b"\x82\x0a\0ConnectX-7\x90\x2f\0VA\x14MLX:MN=M:SMDL=SW_MNGRV\x01\xff\x78"),
                // The VPD of mlx5_1 cannot be read, and that of mlx5_2 is not a file.
                "mlx5_1" => root.folder("sys/class/infiniband/mlx5_1/device"),
                "mlx5_2" => root.folder(&vpd),
                "mlx5_6" => write(b"\x82\x0a\0ConnectX-7\x90\x2f\0VA\x0dMLX:PCI=V0:SMRV\x01\xff\x78"),
                _ => write(FIELD),
            }
        }
        let mut hcas: Vec<Hca> = names.iter().map(|name| hca(name)).collect();
        hcas[3].ports[0].link_layer = LinkLayer::Ethernet;
        hcas[4].uverbs = None;
        hcas[5].driver = Some("efa".to_owned());
        let reader = root.reader();
        let found = |models: &[&str]| {
            let mut hcas = hcas.clone();
            read(&reader, &gpus(models), &mut hcas);
            hcas.into_iter().map(|hca| hca.manages_nvswitches).collect::<Vec<_>>()
        };
        for models in [&["NVIDIA B200"][..], &[], &["NVIDIA R200"]] {
            let wanted = [Some(true), None, None, None, None, None, Some(false)];
            assert_eq!(found(models), wanted, "{models:?}");
        }
        for model in ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GB200"] {
            assert_eq!(found(&[model]), vec![None; 7], "{model}");
        }
        assert_eq!(reader.into_unreadable(), []);
    }
}
