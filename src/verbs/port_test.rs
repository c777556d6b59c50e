//! What a process of its own found out about one port.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes registered with a device: more than the limit of 8 MiB that is usual where
/// nobody raised it.
pub const DEFAULT_SIZE: u64 = 64 * 1024 * 1024;

/// Bytes: of a page.
pub const LEAST_SIZE: u64 = 4096;

/// For each port.
pub const DEFAULT_TIME: Duration = Duration::from_secs(5);

/// A port to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTest {
    pub device: String,
    /// Counted from 1.
    pub port: u8,
    /// The slot of the GID table: needed on RoCE.
    pub gid_index: Option<u8>,
    /// Bytes to register.
    pub size: u64,
    /// The longest time that it may take.
    pub each: Duration,
    /// Bytes: the InfiniBand MTU that the interface's leaves room for, where it is known.
    pub allowed_mtu: Option<u32>,
}

impl PortTest {
    /// `mlx5_0:1`, as NCCL writes ports.
    pub fn name(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }
}

/// One call, or one exchange of data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// `ibv_reg_mr`.
    pub name: String,
    /// Microseconds.
    pub took_us: u64,
    /// With the errno's name where the kernel gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How far the probe of one port came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceProbe {
    pub device: String,
    pub port: u8,
    /// In order; the first that failed is the last, but for steps that others do not need.
    pub steps: Vec<Step>,
    pub firmware: Option<String>,
    /// `ACTIVE`, `DOWN`.
    pub state: Option<String>,
    /// Bytes of the InfiniBand MTU: `active_mtu` is what queue pairs use.
    pub active_mtu: u32,
    pub max_mtu: u32,
    /// RLIMIT_MEMLOCK in bytes; `None` without limit.
    pub memlock: Option<u64>,
    /// Bytes; 0 where none could be.
    pub registered: u64,
    /// The address that the loopback used; `None` on InfiniBand.
    pub gid: Option<String>,
    /// Why it was not tried.
    pub no_loopback: Option<String>,
    /// Whether the data that came was the data that went.
    pub verified: bool,
    /// The median round trip of 8 bytes.
    pub latency_ns: Option<u64>,
    /// Mbit/s.
    pub bandwidth_mbps: Option<u64>,
}

impl DeviceProbe {
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }
}

/// What came of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum ProbeResult {
    Done(Box<DeviceProbe>),
    /// A signal ended it.
    Crashed {
        signal: String,
        during: Option<String>,
    },
    /// It ended without having told what it found.
    Exited {
        code: i32,
        during: Option<String>,
    },
    /// It was killed for taking this long; `gone` is false where even that did not end
    /// it, as it sleeps in the kernel.
    Hung {
        after_ms: u64,
        during: Option<String>,
        gone: bool,
    },
    /// It told more than it may, or something else.
    Garbled {
        during: Option<String>,
    },
    /// It could not be started.
    NotStarted {
        error: String,
    },
}
