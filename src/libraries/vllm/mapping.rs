//! Findings about vLLM's mapping of GPUs to NICs.

use std::fmt;

use super::{MAPPING, SELECTION, SINCE, is_set_by_worker, release};
use crate::fabric::Candidate;
use crate::fabric::distance::of_hca;
use crate::facts::pci::PciDevice;
use crate::facts::rdma::Hca;
use crate::finding::{Finding, Id};
use crate::libraries::LibraryContext;
use crate::text::condensed;

const REMOVAL: &str = "Remove both variables, and rdma-init fills them in if they are needed.";

pub(super) fn findings(subject: &LibraryContext) -> Vec<Finding> {
    let warning = |what: String| subject.warning(Id::VllmMapping, MAPPING, what);
    let value = |name: &str| subject.value(name).filter(|value| !value.trim().is_empty());
    let alone = |set: &str, unset: &str| {
        let message = format!(
            "{}, and {unset} is not set: vLLM fails with \"both must be set together\".",
            subject.shown(set)
        );
        let fix = format!("Also set {unset}, or remove {set}.");
        vec![Finding::warning(Id::VllmMapping, message).about_variables([set, unset]).with_fix(fix)]
    };
    let (mapping, selection) = match (value(MAPPING), value(SELECTION)) {
        (None, None) => return Vec::new(),
        (Some(_), None) => return alone(MAPPING, SELECTION),
        (None, Some(_)) => return alone(SELECTION, MAPPING),
        (Some(mapping), Some(selection)) => (mapping, selection),
    };
    if let Some(release) = release(subject).filter(|release| *release < SINCE) {
        let what =
            format!("vLLM {release} does not read it; vLLM 0.23 and later do. Each worker may take any HCA.");
        return vec![warning(what).with_fix("Use vLLM 0.23 or later.")];
    }
    let gpus = &subject.facts.gpu;
    if !gpus.make.is_nvidia() && !gpus.devices.is_empty() {
        let what = "vLLM maps only NVIDIA's GPUs, and fails with NotImplementedError on others.";
        return vec![warning(what.to_owned()).with_fix("Remove both variables.")];
    }
    let mut findings = Vec::new();
    let mut pairs = Vec::new();
    for segment in mapping.split(',').map(str::trim).filter(|segment| !segment.is_empty()) {
        let pair = segment.split_once('=').and_then(|(gpu, nic)| Some((Bdf::parse(gpu)?, Bdf::parse(nic)?)));
        let Some(pair) = pair else {
            let what =
                format!("\"{segment}\" is not a pair of PCI addresses, so vLLM fails with ValueError.");
            return vec![warning(what).with_fix("Write pairs GPU=NIC with commas between them, such as 0000:18:00.0=0000:1a:00.0. Or remove both variables, and rdma-init fills them in if they are needed.")];
        };
        pairs.push(pair);
    }
    let of_gpu = |gpu: &PciDevice| Bdf::parse(address(gpu));
    let without = gpus
        .devices
        .iter()
        .filter(|gpu| of_gpu(gpu).is_some_and(|address| !pairs.iter().any(|(named, _)| *named == address)));
    let without: Vec<&str> = without.map(address).collect();
    if !without.is_empty() {
        let what = format!(
            "it does not name {}, which this container has, so the worker of such a GPU fails with \"No VLLM_GPU_NIC_PCIE_MAPPING entry\".",
            without.join(", ")
        );
        findings.push(warning(what).with_fix(REMOVAL));
    }
    let hca_at =
        |address: Bdf| subject.facts.rdma.iter().find(|hca| nic(hca).and_then(Bdf::parse) == Some(address));
    let lost: Vec<String> =
        pairs.iter().filter(|(_, nic)| hca_at(*nic).is_none()).map(|(_, nic)| nic.to_string()).collect();
    if !lost.is_empty() {
        let what = format!(
            "no RDMA device here has the address {}, so a worker fails with \"No /sys/class/infiniband device\".",
            lost.join(", ")
        );
        findings.push(warning(what).with_fix(REMOVAL));
    }
    let is_used =
        |hca: &Hca| subject.rails.ports.iter().any(|port| port.is_used() && port.hca.name == hca.name);
    let named =
        |hca: &Hca| pairs.iter().filter_map(|(_, nic)| hca_at(*nic)).any(|named| named.name == hca.name);
    let ports = subject.rails.ports.iter();
    let idle: Vec<String> =
        ports.filter(|port| named(port.hca) && !is_used(port.hca)).map(Candidate::name).collect();
    if !idle.is_empty() {
        let what = format!("it assigns {} to workers, which the job does not use.", condensed(&idle));
        findings.push(warning(what).about_ports(idle).with_fix(REMOVAL));
    }
    // One example of a distant NIC is enough.
    let far = gpus.devices.iter().find_map(|gpu| {
        let named =
            pairs.iter().find(|(named, _)| Some(*named) == of_gpu(gpu)).and_then(|(_, nic)| hca_at(*nic))?;
        let distance = of_hca(gpu, named).filter(|_| is_used(named))?;
        let used = subject.facts.rdma.iter().filter(|hca| is_used(hca));
        let (nearer_at, nearer) =
            used.filter_map(|hca| Some((of_hca(gpu, hca)?, hca))).min_by_key(|(distance, _)| *distance)?;
        let what = format!(
            "the GPU {} gets {} ({}), and {} is nearer ({}).",
            address(gpu),
            named.name,
            distance.word(),
            nearer.name,
            nearer_at.word()
        );
        (nearer_at < distance).then(|| warning(what).with_fix(REMOVAL))
    });
    findings.extend(far);
    let in_front = |variable: &str| {
        let value = value(variable).filter(|value| value.starts_with(['=', '^']))?;
        let what = format!(
            "each worker of vLLM writes an HCA in front of {variable}={value}, where the sign no longer applies to the list."
        );
        let finding = subject.warning(Id::VllmMapping, SELECTION, what).about_variables([variable]);
        let fix = format!("Remove {variable}, or take it out of {SELECTION}.");
        is_set_by_worker(selection, variable).then(|| finding.with_fix(fix))
    };
    findings.extend(["NCCL_IB_HCA", "NVSHMEM_HCA_LIST"].into_iter().filter_map(in_front));
    findings
}

/// Returns the PCI address of a GPU.
pub(super) fn address(gpu: &PciDevice) -> &str {
    gpu.path.rsplit('/').next().unwrap_or_default()
}

/// Returns an HCA's PCI address, as vLLM finds it (`/sys/class/infiniband/NAME/device`).
pub(super) fn nic(hca: &Hca) -> Option<&str> {
    let path = hca.pci_path.as_deref()?;
    path.rsplit('/').next().filter(|address| Bdf::parse(address).is_some())
}

/// A PCI address as vLLM parses it: with a domain of any width, or without one (`normalize_pci`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bdf {
    domain: u64,
    bus: u8,
    device: u8,
    function: u8,
}

impl Bdf {
    fn parse(text: &str) -> Option<Bdf> {
        let text: String = text.trim().to_ascii_lowercase().chars().filter(|c| *c != ' ').collect();
        let text = text.strip_prefix("0x").unwrap_or(&text);
        let (body, function) = text.rsplit_once('.')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let byte = |text: &str| hex(text).and_then(|number| u8::try_from(number).ok());
        let mut parts = body.rsplit(':');
        let (device, bus) = (byte(parts.next()?)?, byte(parts.next()?)?);
        let domain = parts.next().map_or(Some(0), hex)?;
        let is_whole = parts.next().is_none() && device <= 0x1f;
        is_whole.then_some(Bdf { domain, bus, device, function: byte(function)? })
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Bdf { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_however_wide_its_domain_is() {
        let parse = |text| Bdf::parse(text).map(|bdf| bdf.to_string());
        for text in ["00000009:01:00.0", "0009:01:00.0", "9:01:00.0", " 0x0009:01:00.0 "] {
            assert_eq!(parse(text).as_deref(), Some("0009:01:00.0"), "{text}");
        }
        assert_eq!(parse("40:00.1").as_deref(), Some("0000:40:00.1"));
        for text in ["", "40:00", "40:20.0", "x:40:00.0", "1:2:3:4.0", "mlx5_0", "40:00.", ".0"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
