//! Tests what one device can do, step by step.

use std::fs;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Instant;

use nix::fcntl::{OFlag, open};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::Mode;
use serde::Serialize;

use super::completions::Completions;
use super::device::{DeviceList, DeviceTransport, OpenDevice, Port};
use super::failure::Failure;
use super::loopback::Loopback;
use super::memory::{Buffer, Domain, Region};
use super::port_test::{DeviceProbe, PortTest, StepResult};
use super::providers;
use super::queue_pair::{DEPTH, PeerPath, QueuePair};
use super::step::Step;
use super::talk::{End, ProbeControl};
use crate::facts::limits::Amount;
use crate::facts::reader::of_kernel;

/// The number of bytes that [`all`] registers with each device.
const SIZE: usize = 1024 * 1024;

/// The capacity of a completion queue: completions of both ends, for sending and for receiving.
pub(super) const ROOM: i32 = 4 * DEPTH as i32;

/// The result for one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Registration {
    pub device: String,
    /// The number of bytes that could be registered; 0 after an error.
    pub registered: u64,
    /// The step that failed, and why it failed.
    pub error: Option<String>,
}

/// Registers memory with every device that libibverbs knows, in this process.
pub(crate) fn all() -> Vec<Registration> {
    let Ok(devices) = DeviceList::list() else { return Vec::new() };
    let one = |device: String| {
        let mut steps = Steps { list: Vec::new(), talk: &mut Silent };
        let mut probe = DeviceProbe::default();
        if let Some(context) = steps.open(&devices, &device) {
            steps.memory(&context, SIZE, &mut probe, |_, _, _, _| ());
        }
        let failed = steps.list.iter().find_map(|one| Some(format!("{}: {}", one.step, one.error.as_ref()?)));
        Registration { device, registered: probe.registered, error: failed }
    };
    devices.names().into_iter().map(one).collect()
}

/// The parent's side of a probe, if no other process follows the probe's steps.
struct Silent;

impl ProbeControl for Silent {
    fn step(&mut self, _: Step) {}

    fn exchange(&mut self, _: End) -> Option<End> {
        None
    }

    fn meet(&mut self) -> bool {
        false
    }
}

/// Tests one port by itself, with a loopback.
pub(crate) fn port(wanted: &PortTest, talk: &mut dyn ProbeControl) -> DeviceProbe {
    begin(wanted, talk, |steps, context, port, domain, region, probe| {
        steps.loopback(context, port, wanted, domain, region, probe);
    })
}

/// Takes all steps before a connection, then calls `next` with the objects that these steps
/// have made.
pub(super) fn begin(
    wanted: &PortTest,
    talk: &mut dyn ProbeControl,
    next: impl FnOnce(&mut Steps, &OpenDevice, Port, &Domain, &Region, &mut DeviceProbe),
) -> DeviceProbe {
    let mut probe = DeviceProbe {
        device: wanted.device.clone(),
        port: wanted.port,
        memlock: getrlimit(Resource::RLIMIT_MEMLOCK).ok().and_then(|(soft, _)| limit(soft)),
        ..DeviceProbe::default()
    };
    let mut steps = Steps { list: Vec::new(), talk };
    steps.port(wanted, &mut probe, next);
    probe.steps = steps.list;
    probe
}

fn limit(soft: u64) -> Option<u64> {
    match Amount::from_rlim(soft) {
        Amount::Limited(bytes) => Some(bytes),
        Amount::Unlimited(_) => None,
    }
}

pub(super) struct Steps<'a> {
    list: Vec<StepResult>,
    pub(super) talk: &'a mut dyn ProbeControl,
}

impl Steps<'_> {
    pub(super) fn step<T>(&mut self, step: Step, run: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
        self.talk.step(step);
        let start = Instant::now();
        let result = run();
        let took_us = start.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
        let error = result.as_ref().err().cloned();
        self.list.push(StepResult { step, took_us, error });
        result.ok()
    }

    fn port(
        &mut self,
        wanted: &PortTest,
        probe: &mut DeviceProbe,
        next: impl FnOnce(&mut Steps, &OpenDevice, Port, &Domain, &Region, &mut DeviceProbe),
    ) -> Option<()> {
        let devices = self.step(Step::ListDevices, DeviceList::list)?;
        // The kernel shows the device, but libibverbs omits a device that none of its providers
        // accepts. If one of them serves this driver, the omission means that something is wrong with
        // the device.
        let is_foreign = wanted.driver.as_deref().is_some_and(|driver| !providers::serve(driver));
        probe.no_provider =
            is_foreign && !devices.names().contains(&wanted.device) && node(&wanted.device).is_some();
        if probe.no_provider {
            return None;
        }
        let context = self.open(&devices, &wanted.device)?;
        let (firmware, _) = self.step(Step::QueryDevice, || context.device())?;
        probe.firmware = Some(firmware).filter(|firmware| !firmware.is_empty());
        let port = self.step(Step::QueryPort, || context.port(wanted.port));
        if let Some(port) = port {
            probe.state = Some(port.state);
            (probe.active_mtu, probe.max_mtu) = (port.active_mtu, port.max_mtu);
        }
        let size = usize::try_from(wanted.size).unwrap_or(usize::MAX);
        self.memory(&context, size, probe, |steps, probe, domain, region| {
            let Some(port) = port else { return };
            match not_possible(&context, &port, wanted) {
                Some(why) => probe.no_loopback = Some(why.to_owned()),
                None => next(steps, &context, port, domain, region, probe),
            }
        });
        Some(())
    }

    /// Opens a device. It opens the device's node first, because libibverbs waits for five seconds if
    /// access to the node is denied.
    fn open(&mut self, devices: &DeviceList, device: &str) -> Option<OpenDevice> {
        if let Some(node) = node(device) {
            self.step(Step::OpenNode, || {
                match open(&node, OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()) {
                    Ok(_) => Ok(()),
                    Err(errno) => {
                        Err(Failure::Node { path: node.display().to_string(), errno: errno as i32 })
                    }
                }
            })?;
        }
        self.step(Step::OpenDevice, || devices.open(device))
    }

    fn memory(
        &mut self,
        context: &OpenDevice,
        size: usize,
        probe: &mut DeviceProbe,
        next: impl FnOnce(&mut Self, &mut DeviceProbe, &Domain, &Region),
    ) -> Option<()> {
        let domain = self.step(Step::AllocDomain, || Domain::new(context))?;
        let buffer = self.step(Step::Map, || Buffer::new(size))?;
        let region = self.step(Step::Register, || match context.transport() {
            DeviceTransport::Other => Region::local(&domain, buffer),
            _ => Region::new(&domain, buffer),
        })?;
        probe.registered = region.size() as u64;
        next(self, probe, &domain, &region);
        Some(())
    }

    fn loopback(
        &mut self,
        context: &OpenDevice,
        port: Port,
        wanted: &PortTest,
        domain: &Domain,
        region: &Region,
        probe: &mut DeviceProbe,
    ) -> Option<()> {
        let completions = self.step(Step::CreateQueue, || Completions::new(context, ROOM))?;
        let near = self.step(Step::CreatePair, || QueuePair::new(domain, &completions))?;
        let far = self.step(Step::CreatePair, || QueuePair::new(domain, &completions))?;
        let gid = self.address(context, port, wanted, probe)?;
        let route = PeerPath {
            port_number: wanted.port,
            path_mtu: port.path_mtu,
            lid: port.lid,
            gid,
            marks: wanted.marks,
        };
        self.step(Step::ToInit, || {
            near.initialize(wanted.port, wanted.marks)?;
            far.initialize(wanted.port, wanted.marks)
        })?;
        self.step(Step::ToReceive, || {
            near.receive_from(far.number(), &route)?;
            far.receive_from(near.number(), &route)
        })?;
        self.step(Step::ToSend, || {
            near.allow_sending()?;
            far.allow_sending()
        })?;
        let ends = Loopback { completions: &completions, near: &near, far: &far, region };
        self.step(Step::SendAndReceive, || ends.send_and_receive())?;
        self.step(Step::Write, || ends.write())?;
        probe.verified = true;
        probe.latency_ns = self.step(Step::Latency, || ends.latency());
        probe.latency_ns?;
        probe.bandwidth_mbps = self.step(Step::Bandwidth, || ends.bandwidth());
        // All objects are destroyed at the end of this function, which may hang as well.
        self.talk.step(Step::Release);
        Some(())
    }

    /// Checks that the port is up, and returns the GID index and the GID, if the port needs one.
    pub(super) fn address(
        &mut self,
        context: &OpenDevice,
        port: Port,
        wanted: &PortTest,
        probe: &mut DeviceProbe,
    ) -> Option<Option<(u8, Ipv6Addr)>> {
        if !port.active {
            return self.step(Step::QueryPort, || Err(Failure::Port(port.state)));
        }
        let gid = match wanted.gid_index.filter(|_| port.global) {
            None => None,
            Some(index) => Some(self.step(Step::QueryGid, || match context.gid(wanted.port, index)? {
                Some(gid) => Ok((index, gid)),
                None => Err(Failure::EmptySlot(index)),
            })?),
        };
        probe.gid = gid.map(|(_, gid)| gid.to_string());
        Some(gid)
    }
}

/// Returns why two queue pairs on such a port cannot be connected by their numbers alone.
fn not_possible(context: &OpenDevice, port: &Port, wanted: &PortTest) -> Option<&'static str> {
    match context.transport() {
        DeviceTransport::InfiniBand if port.global && wanted.gid_index.is_none() => {
            Some("no GID index was given")
        }
        DeviceTransport::InfiniBand => None,
        DeviceTransport::Iwarp => Some("an iWARP device connects through a connection manager only"),
        DeviceTransport::Other => Some("the device has no reliable connections of verbs (as EFA)"),
    }
}

/// Returns the device's node, such as `/dev/infiniband/uverbs0`; `None` if the kernel does not
/// name it.
fn node(device: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/infiniband_verbs").ok()?.filter_map(Result::ok);
    let mut entries = entries.map(|entry| entry.path());
    let entry =
        entries.find(|path| of_kernel(path.join("ibdev")).is_some_and(|name| name.trim_end() == device))?;
    Some(PathBuf::from("/dev/infiniband").join(entry.file_name()?))
}
