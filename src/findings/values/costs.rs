//! Values that are right while debugging, but slow down every job that keeps them. This list omits variables
//! that NCCL's documentation leaves to the platform or the model (`NCCL_NVLS_ENABLE`, `NCCL_CUMEM_ENABLE`,
//! `NCCL_PXN_DISABLE`, `NCCL_NET_GDR_READ`, `NCCL_CROSS_NIC`, CollNet), and those that were removed or have
//! the value as their default, such as `NCCL_CHECKS_DISABLE` and `NCCL_LAUNCH_MODE`.

use super::{Decided, shown, tuning};
use crate::facts::Facts;
use crate::finding::{Finding, Id, Source};
use crate::libraries::nccl::level;
use crate::libraries::nccl::number::{integer, strtoll};
use crate::libraries::nccl::predict::Transport;
use crate::libraries::nccl::version::Version;
use crate::plan::Fabric;

/// A value that costs time.
struct Cost {
    variable: &'static str,
    /// Whether this value costs time.
    applies: fn(&str, Version) -> bool,
    /// Whether the value can cost anything in this job.
    matters: fn(&Decided) -> bool,
    effect: Effect,
    /// The case in which the value makes sense, as a clause after `unless` or `only`.
    sense: &'static str,
}

/// The effect of a value, as the end of a sentence that begins with the value.
enum Effect {
    Clause(&'static str),
    /// A predicate whose subject is the library.
    Library(&'static str),
}

const fn cost(
    variable: &'static str,
    applies: fn(&str, Version) -> bool,
    matters: fn(&Decided) -> bool,
    effect: Effect,
    sense: &'static str,
) -> Cost {
    Cost { variable, applies, matters, effect, sense }
}

/// The sources are NCCL's user guide (`docs/userguide/source/env.rst`, 2.30.7) and source code, the CUDA
/// programming guide (`CUDA_LAUNCH_BLOCKING`), and PyTorch's documentation of `torch.distributed`
/// (`TORCH_*`).
const COSTS: &[Cost] = &[
    cost("NCCL_P2P_DISABLE", is_one, |decided| has_p2p(decided.facts), NO_P2P, WITHOUT_P2P),
    cost("NCCL_P2P_LEVEL", is_local, |decided| has_p2p(decided.facts), NO_P2P, WITHOUT_P2P),
    // `shmCanConnect` (`src/transport/shm.cc`).
    cost(
        "NCCL_SHM_DISABLE",
        is_one,
        |decided| has_shared_memory(decided.facts),
        Effect::Clause(
            "GPUs of this node that cannot reach each other directly use the network instead of shared memory",
        ),
        "shared memory cannot be used here",
    ),
    cost(
        "NCCL_NET_GDR_LEVEL",
        is_local,
        |decided| has_gpudirect(decided.facts),
        NO_GPUDIRECT,
        "GPUDirect RDMA fails on these nodes",
    ),
    // NCCL prefers DMA-BUF to nvidia_peermem, which does the same (`src/transport/net.cc`). With AMD's GPUs, peer
    // memory is part of the drivers, AMD itself publishes 0, and no file shows which way RCCL will take.
    cost(
        "NCCL_DMABUF_ENABLE",
        is_zero,
        |decided| needs_dmabuf(decided.facts),
        NO_GPUDIRECT,
        "the job has nvidia_peermem, or DMA-BUF fails on these nodes",
    ),
    cost("NCCL_MAX_NCHANNELS", is_one, any, ONE_CHANNEL, FEW_SMS),
    cost("NCCL_MAX_CTAS", is_one, any, ONE_CHANNEL, FEW_SMS),
    // The default is 512 or 256. A value below 64 counts as 64 (`getNthreads` in `src/graph/tuning.cc`).
    cost(
        "NCCL_NTHREADS",
        |text, version| integer(text, version).is_some_and(|number| (1..128).contains(&number)),
        any,
        Effect::Library(
            "has only a few threads for each channel, which cannot fill an NVLink or an HCA (the default is 256 or 512)",
        ),
        FEW_SMS,
    ),
    // The default is 4 MiB.
    cost(
        "NCCL_BUFFSIZE",
        |text, version| integer(text, version).is_some_and(|number| (1..64 * 1024).contains(&number)),
        any,
        Effect::Library(
            "moves data in pieces that are too small for a fast network (the default is 4194304 bytes)",
        ),
        "memory is very scarce",
    ),
    // Clouds publish values up to 8.
    cost(
        "NCCL_IB_QPS_PER_CONNECTION",
        |text, version| integer(text, version).is_some_and(|number| (17..=128).contains(&number)),
        |decided| !decided.facts.rdma.is_empty(),
        Effect::Clause(
            "every connection takes that many queue pairs of the HCA, which slows small messages and the start, and large jobs run out of them (clouds publish 2 to 8)",
        ),
        "the fabric's vendor asks for it",
    ),
    cost(
        "NCCL_ALGO",
        |text, _| is_one_word("NCCL_ALGO", text),
        can_choose,
        Effect::Library("cannot choose the best algorithm for each size and operation"),
        ONE_RESULT,
    ),
    cost(
        "NCCL_PROTO",
        |text, _| is_one_word("NCCL_PROTO", text),
        can_choose,
        Effect::Library("cannot choose the best protocol for each size: small or large messages get slower"),
        "you suspect a fault in another protocol",
    ),
    cost(
        "NCCL_DEBUG",
        |text, _| text.trim().eq_ignore_ascii_case("TRACE"),
        any,
        Effect::Library("may write a line for each call, which slows the job and fills its log"),
        "you are looking for a single call",
    ),
    // AWS' cheat sheet for EFA's variables: no longer needed, because the plugin sets what the kernel needs.
    cost(
        "FI_EFA_FORK_SAFE",
        is_one,
        has_efa,
        Effect::Clause(
            "libfabric then takes no huge pages for its buffers, and aws-ofi-nccl by itself sets what this kernel needs",
        ),
        "AWS asks for it with your release of libfabric",
    ),
    cost(
        "FI_EFA_USE_DEVICE_RDMA",
        is_zero,
        has_efa,
        Effect::Clause(
            "EFA then moves data without RDMA; libfabric 1.18 and aws-ofi-nccl 1.7 and later use it on each device that can",
        ),
        "the instance has no RDMA read, or the image has older releases",
    ),
    cost("NCCL_CHECK_POINTERS", is_one, any, CHECKS, DEVELOPMENT),
    cost(
        "NCCL_CHECK_MODE",
        |text, _| text.to_ascii_uppercase().starts_with("DEBUG"),
        any,
        CHECKS,
        DEVELOPMENT,
    ),
    cost(
        "CUDA_LAUNCH_BLOCKING",
        |text, _| strtoll(text).is_some_and(|number| number != 0),
        any,
        Effect::Clause(
            "the program waits for each kernel, so computing and communication do not overlap, and several communicators may deadlock",
        ),
        "you are looking for a CUDA error",
    ),
    cost("TORCH_NCCL_BLOCKING_WAIT", is_one, any, WAITS, "the program handles the exceptions of a timeout"),
    cost(
        "TORCH_DISTRIBUTED_DEBUG",
        |text, _| text.eq_ignore_ascii_case("DETAIL"),
        any,
        Effect::Clause("PyTorch compares every collective call between all processes before it runs"),
        "you are looking for calls that differ between the processes",
    ),
];

const NO_P2P: Effect = Effect::Clause(
    "the GPUs of this node use neither NVLink nor PCIe directly, and copy through host memory",
);
const WITHOUT_P2P: &str = "direct access fails here, as with an IOMMU or a hypervisor that redirects it";
const NO_GPUDIRECT: Effect =
    Effect::Library("does not use GPUDirect RDMA, and copies what it sends and receives through host memory");
const ONE_CHANNEL: Effect = Effect::Library(
    "has one channel, and with it one thread block and mostly one HCA and one NVLink at a time",
);
const FEW_SMS: &str = "the GPU must stay free for the job's own kernels";
const ONE_RESULT: &str =
    "results must be the same to the last bit, or you suspect a fault in another algorithm";
const CHECKS: Effect = Effect::Library("checks the arguments of each call");
const DEVELOPMENT: &str = "the program is being developed";
const WAITS: Effect = Effect::Clause(
    "the processes wait for each collective call, so that they cannot prepare the next one meanwhile",
);

/// GPUs that cannot access each other or HCAs directly.
const CONSUMER: &[&str] = &["GeForce", SPARK];

const SPARK: &str = "GB10";

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    // Without GPUs and HCAs, no NCCL job is visible here.
    if decided.facts.gpu.count.is_none() && decided.facts.rdma.is_empty() {
        return Vec::new();
    }
    let version = decided.version();
    // A value that the platform publishes is right there, whatever it costs; another finding reports a value
    // that differs from the published one.
    let is_published = |cost: &Cost| {
        decided
            .profile
            .variables
            .get(cost.variable)
            .is_some_and(|published| (cost.applies)(published, version))
    };
    COSTS
        .iter()
        .filter_map(|cost| Some((cost, decided.checked(cost.variable)?)))
        .filter(|(cost, setting)| (cost.applies)(&setting.value, version) && (cost.matters)(decided))
        .filter(|(cost, setting)| setting.origin != Source::AtStart && !is_published(cost))
        .map(|(cost, setting)| {
            let message = match cost.effect {
                Effect::Clause(clause) => format!("{}: {clause}.", shown(setting)),
                Effect::Library(does) => format!("{}: {} {does}.", shown(setting), decided.library()),
            };
            Finding::warning(Id::SlowValue, message)
                .about_variables([cost.variable])
                .with_fix(format!("Remove {}, unless {}.", cost.variable, cost.sense))
        })
        .collect()
}

fn is_one(text: &str, version: Version) -> bool {
    integer(text, version) == Some(1)
}

fn is_zero(text: &str, version: Version) -> bool {
    integer(text, version) == Some(0)
}

fn is_local(text: &str, version: Version) -> bool {
    level::parse(text, version) == Some("LOC")
}

/// Returns whether a list has a single word, which NCCL knows, for all functions. A list that begins with `^`
/// excludes words instead.
fn is_one_word(variable: &str, text: &str) -> bool {
    let mut words = text.split(',').filter(|word| !word.is_empty());
    let first = words.next();
    let is_one = words.next().is_none() && first.is_some_and(|word| !word.contains(['^', ':', ';']));
    is_one && tuning::is_right(variable, text)
}

fn any(_: &Decided) -> bool {
    true
}

pub(super) fn has_efa(decided: &Decided) -> bool {
    matches!(decided.plan.fabric, Fabric::Plugin(_))
        && decided.facts.rdma.iter().any(|hca| hca.driver.as_deref() == Some("efa"))
}

/// Returns whether every algorithm and protocol works here. For a network that only a net plugin can use, the
/// plugin's vendor publishes which ones work: Google for GPUDirect-TCPX, aws-ofi-nccl for EFA. In a ring of
/// cables between DGX Sparks, only the ring algorithm works.
fn can_choose(decided: &Decided) -> bool {
    let is_of_plugin = match decided.prediction().map(|prediction| &prediction.transport) {
        Some(Transport::Plugin { otherwise, .. }) => otherwise.ports().is_none(),
        _ => false,
    };
    !is_of_plugin && decided.facts.gpu.model_of(&[SPARK]).is_none()
}

fn has_several_gpus(facts: &Facts) -> bool {
    facts.gpu.count != Some(1)
}

/// Returns whether shared memory matters. In an NVLink domain of several nodes, all GPUs of a node reach each
/// other directly.
fn has_shared_memory(facts: &Facts) -> bool {
    has_several_gpus(facts) && facts.imex.usable().next().is_none()
}

/// Returns whether P2P matters. With NVLink to other nodes, another finding reports that it is not used.
fn has_p2p(facts: &Facts) -> bool {
    has_several_gpus(facts) && facts.imex.usable().next().is_none() && facts.gpu.model_of(CONSUMER).is_none()
}

/// Returns whether GPUDirect RDMA is certainly lost without DMA-BUF.
fn needs_dmabuf(facts: &Facts) -> bool {
    has_gpudirect(facts) && facts.gpu.make.is_nvidia() && facts.gpu.peer_memory.is_none()
}

fn has_gpudirect(facts: &Facts) -> bool {
    !facts.rdma.is_empty() && facts.gpu.model_of(CONSUMER).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::version::NEWEST;

    #[test]
    fn only_unreasonable_values_are_costly() {
        let applies = |variable: &str, value: &str| {
            let cost = COSTS.iter().find(|cost| cost.variable == variable).unwrap();
            (cost.applies)(value, NEWEST)
        };
        for (variable, slow, sound) in [
            ("NCCL_P2P_DISABLE", &["1", "01"][..], &["0", "2", ""][..]),
            ("NCCL_P2P_LEVEL", &["LOC", "0"], &["NVL", "5", "", "loc"]),
            ("NCCL_NET_GDR_LEVEL", &["LOC", "0"], &["PIX", "1", "SYS"]),
            ("NCCL_DMABUF_ENABLE", &["0"], &["1", ""]),
            ("NCCL_MAX_NCHANNELS", &["1"], &["0", "2", "32"]),
            ("NCCL_NTHREADS", &["32", "64"], &["0", "128", "512"]),
            ("NCCL_BUFFSIZE", &["1024"], &["0", "65536", "0x800000"]),
            ("NCCL_IB_QPS_PER_CONNECTION", &["17", "128"], &["1", "8", "16", "129"]),
            (
                "NCCL_ALGO",
                &["Ring", "Tree,"],
                &["", "Ring,Tree", "^NVLS", "AllReduce:Ring", "Ring;AllReduce:Tree"],
            ),
            ("NCCL_PROTO", &["Simple"], &["LL,Simple", "^LL128", "auto"]),
            ("NCCL_DEBUG", &["TRACE", "trace"], &["INFO", "WARN"]),
            ("NCCL_CHECK_MODE", &["DEBUG_LOCAL", "debug_global"], &["DEFAULT"]),
            ("CUDA_LAUNCH_BLOCKING", &["1"], &["0", ""]),
            ("TORCH_DISTRIBUTED_DEBUG", &["DETAIL"], &["INFO", "OFF"]),
        ] {
            for value in slow {
                assert!(applies(variable, value), "{variable}={value}");
            }
            for value in sound {
                assert!(!applies(variable, value), "{variable}={value}");
            }
        }
    }

    #[test]
    fn what_the_gpus_cannot_do_costs_nothing() {
        let mut facts = Facts::default();
        facts.gpu.count = Some(8);
        assert!(has_p2p(&facts) && has_several_gpus(&facts));
        facts.gpu.models = vec!["NVIDIA GeForce RTX 4090".to_owned()];
        assert!(!has_p2p(&facts) && has_several_gpus(&facts));
        facts.gpu.count = Some(1);
        assert!(!has_several_gpus(&facts));
    }
}
