//! A port to test, and what a process of its own found out about it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The number of bytes registered with a device. It is more than 8 MiB, the usual limit if
/// nobody raised it.
pub const DEFAULT_SIZE: u64 = 64 * 1024 * 1024;

/// The least number of bytes to register: the smallest page that a kernel has. A kernel with larger
/// pages pins a whole page of its own.
pub const LEAST_SIZE: u64 = 4096;

/// The longest time for the test of one port.
pub const DEFAULT_TIME: Duration = Duration::from_secs(5);

/// A port to test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTest {
    pub device: String,
    /// The number of the port, counted from 1.
    pub port: u8,
    /// The slot of the GID table. RoCE needs one.
    pub gid_index: Option<u8>,
    /// The number of bytes to register.
    pub size: u64,
    /// The longest time for the test of this port.
    pub each: Duration,
    /// The largest InfiniBand MTU, in bytes, that fits into the interface's MTU; `None` if that
    /// is not known.
    pub allowed_mtu: Option<u32>,
}

impl PortTest {
    /// Returns the port as NCCL writes it: `mlx5_0:1`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.device, self.port)
    }
}

/// One step of a probe: a call, or an exchange of data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The name of the call or exchange, for example `ibv_reg_mr`.
    pub name: String,
    /// The time that the step took, in microseconds.
    pub took_us: u64,
    /// Why the step failed, with the errno's name if the kernel gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How far the probe of one port came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceProbe {
    pub device: String,
    pub port: u8,
    /// The steps in their order. The first step that failed is the last one, unless the others
    /// do not need it.
    pub steps: Vec<Step>,
    pub firmware: Option<String>,
    /// The state of the port, for example `ACTIVE` or `DOWN`.
    pub state: Option<String>,
    /// The MTU in bytes. Queue pairs use `active_mtu`.
    pub active_mtu: u32,
    pub max_mtu: u32,
    /// The limit RLIMIT_MEMLOCK in bytes; `None` without a limit.
    pub memlock: Option<u64>,
    /// The number of bytes that were registered; 0 if none could be.
    pub registered: u64,
    /// The address that the loopback used; `None` on InfiniBand.
    pub gid: Option<String>,
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
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }
}

/// How the process of a probe ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum ProbeResult {
    Done(Box<DeviceProbe>),
    /// A signal ended the process.
    Crashed {
        signal: String,
        during: Option<String>,
    },
    /// The process ended without having told what it found.
    Exited {
        code: i32,
        during: Option<String>,
    },
    /// The process was killed for taking this long. `gone` is false if even that did not end
    /// it, because it sleeps in the kernel.
    Hung {
        after_ms: u64,
        during: Option<String>,
        gone: bool,
    },
    /// The process told more than it may, or something that is no result.
    Garbled {
        during: Option<String>,
    },
    /// The process could not be started.
    NotStarted {
        error: String,
    },
}
