//! A port to test, and what a separate process found out about it.

use std::time::Duration;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::device::PortState;
use super::failure::Failure;
use super::step::Step;
use crate::facts::reader::describe;
use crate::text;

/// The number of bytes registered with a device. It is more than 8 MiB, the kernel's default
/// limit.
pub(crate) const DEFAULT_SIZE: u64 = 64 * 1024 * 1024;

/// The smallest number of bytes to register: the smallest page size of any kernel. A kernel with larger
/// pages pins one whole page.
pub(crate) const LEAST_SIZE: u64 = 4096;

/// The longest time for the test of one port.
pub(crate) const DEFAULT_TIME: Duration = Duration::from_secs(5);

/// A port to test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTest {
    pub device: String,
    /// The number of the port, counted from 1.
    pub port: u8,
    /// The index in the GID table. RoCE needs one.
    pub gid_index: Option<u8>,
    /// The number of bytes to register.
    pub size: u64,
    /// The longest time for the test of this port.
    pub each: Duration,
    /// The largest InfiniBand MTU, in bytes, that fits into the interface's MTU; `None` if that
    /// is not known.
    pub allowed_mtu: Option<u32>,
    /// How the packets of the job are marked.
    pub marks: Marks,
    /// The kernel driver of the device; `None` if it is not known.
    pub driver: Option<String>,
    /// In bytes, the free CMA memory outside of CMA areas, which cannot be pinned.
    pub cma_outside_areas: Option<u64>,
}

/// The attributes of the job's queue pairs other than their addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// The index in the table of partition keys.
    pub pkey_index: u16,
    pub service_level: u8,
    /// The traffic class in the global route header (GRH), such as on RoCE: DSCP and ECN.
    pub traffic_class: u8,
}

impl PortTest {
    /// Returns the port as NCCL writes it: `mlx5_0:1`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }
}

/// One step of a probe, and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepResult {
    pub step: Step,
    /// The time that the step took, in microseconds.
    pub took_us: u64,
    /// Why the step failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// How far the probe of one port got, and what it found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceProbe {
    pub device: String,
    pub port: u8,
    /// The steps in order. The list ends at the first step that failed, unless later steps do not need
    /// that step.
    pub steps: Vec<StepResult>,
    pub firmware: Option<String>,
    pub state: Option<PortState>,
    /// The MTU in bytes. Queue pairs use `active_mtu`.
    pub active_mtu: u32,
    pub max_mtu: u32,
    /// The limit RLIMIT_MEMLOCK in bytes; `None` without a limit.
    pub memlock: Option<u64>,
    /// The number of bytes that were registered; 0 if none could be registered.
    pub registered: u64,
    /// The address that the loopback used; `None` on InfiniBand.
    pub gid: Option<String>,
    /// Whether this program has no provider for the device, so nothing was tried.
    pub no_provider: bool,
    /// Why the loopback was not tried.
    pub no_loopback: Option<String>,
    /// Whether the data that arrived is the data that was sent.
    pub verified: bool,
    /// The median round trip of 8 bytes, in nanoseconds.
    pub latency_ns: Option<u64>,
    /// The bandwidth in Mbit/s.
    pub bandwidth_mbps: Option<u64>,
}

impl DeviceProbe {
    /// Returns the first step that failed, and why.
    pub(crate) fn failure(&self) -> Option<(Step, &Failure)> {
        self.steps.iter().find_map(|one| Some((one.step, one.error.as_ref()?)))
    }
}

/// The result of a probe, or how its process ended without one.
pub(crate) type ProbeResult = Result<Box<DeviceProbe>, ProbeEnd>;

/// How a probe's process ended without a result. `during` is the step that it was at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProbeEnd {
    /// A signal ended the process.
    #[error("the probe was killed by {signal}{}", at(*during))]
    Crashed { signal: String, during: Option<Step> },
    /// The process exited without reporting what it found.
    #[error("the probe ended with code {code} and reported nothing{}", at(*during))]
    Exited { code: i32, during: Option<Step> },
    /// The process took this long and was killed. `gone` is false if it did not exit even then, because
    /// it sleeps in the kernel.
    #[error(
        "the probe did not finish within {} and {}{}",
        text::microseconds(after_ms.saturating_mul(1000)),
        if *gone { "was killed" } else { "does not exit even when killed" },
        at(*during)
    )]
    Hung { after_ms: u64, during: Option<Step>, gone: bool },
    /// The process sent more than it may, or something that is not a result.
    #[error("the probe's report is invalid{}", at(*during))]
    Garbled { during: Option<Step> },
    /// The process could not be started.
    #[error("cannot start a process for it: {}", describe(Errno::from_raw(*errno)))]
    NotStarted { errno: i32 },
}

impl ProbeEnd {
    /// Returns the step that the process was at.
    pub(crate) fn during(&self) -> Option<Step> {
        match self {
            ProbeEnd::Crashed { during, .. }
            | ProbeEnd::Exited { during, .. }
            | ProbeEnd::Hung { during, .. }
            | ProbeEnd::Garbled { during } => *during,
            ProbeEnd::NotStarted { .. } => None,
        }
    }
}

fn at(during: Option<Step>) -> String {
    during.map(|step| format!(", during {step}")).unwrap_or_default()
}
