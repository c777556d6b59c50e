//! The HCA that is nearest to each GPU.

use super::Evidence;
use super::ports::used;
use crate::fabric::distance::{self, Distance};
use crate::facts::Facts;
use crate::facts::pci::PciDevice;
use crate::facts::rdma::{Hca, Port};
use crate::libraries::nccl::c2c;
use crate::plan::Plan;
use crate::text::condensed;

/// A GPU, how far its nearest HCA is, and all HCAs at that distance.
struct Nearest<'a> {
    gpu: String,
    distance: Distance,
    hcas: Vec<&'a str>,
    /// Whether the kernel reports the CPU that the GPU and these HCAs are connected to.
    has_cpu: bool,
}

pub(crate) fn gpu_nic(facts: &Facts, plan: &Plan) -> Evidence {
    let devices = &facts.gpu.devices;
    if facts.gpu.count.is_none() && devices.is_empty() {
        return Evidence::skip("no GPU");
    }
    let mut hcas: Vec<&Hca> = used(facts, plan).map(|(hca, _)| hca).collect();
    hcas.dedup_by(|a, b| a.name == b.name);
    if hcas.is_empty() {
        return Evidence::skip("no port is in use");
    }
    if devices.is_empty() {
        return Evidence::skip("the facts do not say where the GPUs are");
    }
    let idle: Vec<&Hca> =
        facts.rdma.iter().filter(|hca| !hcas.iter().any(|used| used.name == hca.name)).collect();
    let mut gpus = Vec::new();
    let mut farther: Vec<(String, Vec<String>)> = Vec::new();
    let mut nearer_hcas: Vec<&str> = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        let Some((distance, names)) = nearest(device, &hcas) else { continue };
        let gpu = format!("GPU {index}");
        if !distance.is_near()
            && let Some((nearer, others)) = nearest(device, &idle).filter(|(other, _)| *other < distance)
        {
            let text = format!(
                "{} {}, but {} {} ({})",
                condensed(&names),
                distance.word(),
                condensed(&others),
                nearer.word(),
                why_idle(plan, &others)
            );
            nearer_hcas.extend(others.iter().filter(|name| !nearer_hcas.contains(name)).collect::<Vec<_>>());
            match farther.iter_mut().find(|(known, _)| *known == text) {
                Some((_, gpus)) => gpus.push(gpu.clone()),
                None => farther.push((text, vec![gpu.clone()])),
            }
        }
        let nodes = hcas.iter().filter(|hca| names.contains(&hca.name.as_str())).map(|hca| hca.numa_node);
        let has_cpu = nodes.chain([device.numa_node]).all(|node| has_cpu(facts, node));
        gpus.push(Nearest { gpu, distance, hcas: names, has_cpu });
    }
    if gpus.is_empty() {
        return Evidence::skip("no HCA in use is a PCI device");
    }
    let has_c2c = facts.gpu.model_of(c2c::MODELS).is_some();
    let line = |gpu: &Nearest| {
        // The GPU is connected to this CPU over C2C, so the path over the PCI bus does not count.
        let over = if has_c2c && gpu.distance == Distance::Node { ", over C2C" } else { "" };
        format!("{}: {} {}{over}", gpu.gpu, condensed(&gpu.hcas), gpu.distance.word())
    };
    let evidence = Evidence::of(gpus.iter().map(line));
    let far: Vec<&str> = gpus
        .iter()
        .filter(|gpu| gpu.distance == Distance::Sys && gpu.has_cpu)
        .map(|gpu| gpu.gpu.as_str())
        .collect();
    if has_c2c && farther.is_empty() && !far.is_empty() {
        return evidence.warn(
            format!(
                "{} has no HCA on its own CPU: NCCL uses GPUDirect RDMA over C2C only to an HCA of the same NUMA node, and otherwise copies through the memory of both CPUs.",
                condensed(&far)
            ),
            "Give the container GPUs and HCAs of one NUMA node (a resource claim that matches their numaNode).",
        );
    }
    if !farther.is_empty() {
        let list: Vec<String> = farther
            .iter()
            .map(|(text, gpus)| {
                let gpus: Vec<&str> = gpus.iter().map(String::as_str).collect();
                format!("{}: {text}", condensed(&gpus))
            })
            .collect();
        return evidence.warn(
            format!(
                "The job leaves HCAs unused that are nearer to a GPU than those that it uses: {}.",
                list.join("; ")
            ),
            &fix(facts, &nearer_hcas),
        );
    }
    match gpus.as_slice() {
        [first, _, ..]
            if hcas.len() > 1 && first.hcas.len() == 1 && gpus.iter().all(|g| g.hcas == first.hcas) =>
        {
            evidence.warn(
                format!(
                    "All {} GPUs have the same nearest HCA, {}, though {} HCAs are in use.",
                    gpus.len(),
                    first.hcas[0],
                    hcas.len()
                ),
                "Give the container GPUs and HCAs that are near each other (a device plugin that knows the topology).",
            )
        }
        _ => evidence,
    }
}

/// Returns whether this is a NUMA node with a CPU. A GPU may belong to the NUMA node of its own memory,
/// which has no CPU.
fn has_cpu(facts: &Facts, node: Option<i32>) -> bool {
    let node = node.and_then(|node| u32::try_from(node).ok());
    node.is_some_and(|node| !facts.memory.is_without_cpu(node))
}

/// Returns the fix if these HCAs are nearer than those in use. Ports that are not up come first.
fn fix(facts: &Facts, nearer: &[&str]) -> String {
    let is_up = |name: &&&str| {
        let hca = facts.rdma.iter().find(|hca| hca.name == ***name);
        hca.is_some_and(|hca| hca.ports.iter().any(Port::is_active))
    };
    let (up, down): (Vec<&str>, Vec<&str>) = nearer.iter().partition(|name| is_up(name));
    let mut steps = Vec::new();
    if !down.is_empty() {
        steps.push(format!(
            "Bring the port of {} up: check its cable, its switch port and its interface on the node.",
            condensed(&down)
        ));
    }
    if !up.is_empty() {
        steps.push(format!(
            "Let the job use {}, or allot HCAs with the GPUs that they are near (a device plugin that knows the topology).",
            condensed(&up)
        ));
    }
    steps.join(" ")
}

/// Returns the distance of the nearest HCAs, and their names.
fn nearest<'a>(gpu: &PciDevice, hcas: &[&'a Hca]) -> Option<(Distance, Vec<&'a str>)> {
    let distance = |hca: &Hca| distance::of_hca(gpu, hca);
    let least = hcas.iter().filter_map(|hca| distance(hca)).min()?;
    let at_it = hcas.iter().filter(|hca| distance(hca) == Some(least));
    Some((least, at_it.map(|hca| hca.name.as_str()).collect()))
}

/// Returns why the first of these HCAs is not used.
fn why_idle<'a>(plan: &'a Plan, hcas: &[&str]) -> &'a str {
    let verdict = plan.ports.iter().find(|verdict| hcas.first() == Some(&verdict.hca.as_str()));
    verdict.and_then(|verdict| verdict.reason.as_deref()).unwrap_or("not wanted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::evidence::tests::host;

    const ROOTS: [&str; 2] = ["pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:90/0000:90:01.0/0000:91:00.0"];

    /// Returns the evidence for HCAs and GPUs that are each behind one of two switches. Only the first
    /// `used` HCAs are used.
    fn evidence(gpus: &[usize], hcas: &[usize], used: usize) -> Evidence {
        let (mut facts, plan) = host(hcas.len(), used);
        let path = |root: usize, device: usize| {
            format!("/sys/devices/{}/0000:12:0{device}.0/0000:1{device}:00.0", ROOTS[root])
        };
        let place =
            |(n, root): (usize, &usize)| PciDevice { path: path(*root, n), numa_node: Some(*root as i32) };
        facts.gpu.count = Some(gpus.len() as u32);
        facts.gpu.devices = gpus.iter().enumerate().map(place).collect();
        for (n, hca) in facts.rdma.iter_mut().enumerate() {
            hca.pci_path = Some(path(hcas[n], 9 - n));
            hca.numa_node = Some(hcas[n] as i32);
        }
        gpu_nic(&facts, &plan)
    }

    #[test]
    fn each_gpu_has_its_nearest() {
        let found = evidence(&[0, 0, 1], &[0, 1, 1], 3);
        assert_eq!(found.lines, ["GPU 0: mlx5_0 PIX", "GPU 1: mlx5_0 PIX", "GPU 2: mlx5_1, mlx5_2 PIX"]);
        assert_eq!((found.wrong, found.skip), (None, None));
        // The HCA is far away, but no other one is nearer.
        let far = evidence(&[0], &[1], 1);
        assert_eq!((far.lines, far.wrong), (vec!["GPU 0: mlx5_0 SYS".to_owned()], None));
    }

    #[test]
    fn a_nearer_one_that_is_left_alone_is_named_with_the_reason() {
        let (_, message, fix) = evidence(&[0, 0, 1], &[1, 0], 1).wrong.unwrap();
        assert!(fix.starts_with("Bring the port of mlx5_1 up"), "{fix}");
        assert!(
            message.ends_with(": GPU 0, GPU 1: mlx5_0 SYS, but mlx5_1 PIX (the port is DOWN)."),
            "{message}"
        );
        let (mut facts, _) = host(3, 1);
        facts.rdma[1].ports[0].state = "ACTIVE".to_owned();
        let up = super::fix(&facts, &["mlx5_1"]);
        assert!(up.starts_with("Let the job use mlx5_1, or allot"), "{up}");
        let both = super::fix(&facts, &["mlx5_1", "mlx5_2"]);
        assert!(both.starts_with("Bring the port of mlx5_2 up") && both.ends_with(&up), "{both}");
        // The used HCA is near enough.
        assert_eq!(evidence(&[0], &[0, 0], 1).wrong, None);
    }

    #[test]
    fn over_c2c_the_numa_node_decides() {
        let on = |gpu_node: i32| {
            let (mut facts, plan) = host(2, 2);
            facts.gpu.count = Some(1);
            facts.gpu.models = vec!["NVIDIA GB200".to_owned()];
            facts.memory.without_cpu = Some("2-9".to_owned());
            let path = "/sys/devices/pci0008:00/0008:00:00.0/0008:06:00.0".to_owned();
            facts.gpu.devices = vec![PciDevice { path, numa_node: Some(gpu_node) }];
            for (n, hca) in facts.rdma.iter_mut().enumerate() {
                hca.pci_path = Some(format!("/sys/devices/pci001{n}:00/001{n}:00:00.0/001{n}:03:00.0"));
                hca.numa_node = Some(1);
            }
            gpu_nic(&facts, &plan)
        };
        assert_eq!(on(1).lines, ["GPU 0: mlx5_0, mlx5_1 NODE, over C2C"]);
        assert_eq!(on(1).wrong, None);
        let (_, message, _) = on(0).wrong.unwrap();
        assert!(message.starts_with("GPU 0 has no HCA on its own CPU"), "{message}");
        assert_eq!(on(2).wrong, None, "the node of the GPU's own memory tells nothing");
        assert_eq!(on(-1).wrong, None);
    }

    #[test]
    fn gpus_that_share_one_of_several_are_told() {
        let (_, message, _) = evidence(&[0, 0], &[1, 0], 2).wrong.unwrap();
        assert_eq!(message, "All 2 GPUs have the same nearest HCA, mlx5_1, though 2 HCAs are in use.");
        assert_eq!(evidence(&[0, 0], &[0], 1).wrong, None);
        assert_eq!(evidence(&[0], &[1, 0], 2).wrong, None);
    }

    #[test]
    fn without_places_there_is_nothing_to_say() {
        let skip = |facts: &Facts, plan: &Plan| gpu_nic(facts, plan).skip.unwrap();
        let (mut facts, plan) = host(2, 2);
        assert_eq!(skip(&facts, &plan), "no GPU");
        facts.gpu.count = Some(1);
        assert_eq!(skip(&facts, &plan), "the facts do not say where the GPUs are");
        facts.gpu.devices =
            vec![PciDevice { path: "/sys/devices/pci0000:00/0000:00:02.0".into(), numa_node: None }];
        assert_eq!(skip(&facts, &plan), "no HCA in use is a PCI device");
        let (_, none) = host(0, 0);
        assert_eq!(skip(&facts, &none), "no port is in use");
    }
}
