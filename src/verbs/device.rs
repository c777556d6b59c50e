//! Devices, opened devices, and what they report.

use std::ffi::CStr;
use std::mem::zeroed;
use std::net::Ipv6Addr;
use std::ptr::NonNull;

use rdma_sys::{
    ___ibv_query_port, ibv_close_device, ibv_context, ibv_device, ibv_device_attr, ibv_free_device_list,
    ibv_get_device_list, ibv_get_device_name, ibv_gid, ibv_mtu, ibv_open_device, ibv_port_attr,
    ibv_port_state, ibv_query_device, ibv_query_gid, ibv_transport_type,
};

use serde::{Deserialize, Serialize};

use super::failure::{Failure, done, made};

/// The value of `IBV_LINK_LAYER_ETHERNET`, which is in an anonymous enumeration of verbs.h.
const ETHERNET: u8 = 2;

/// The value of `IBV_QPF_GRH_REQUIRED` (`enum ib_port_flags` of the kernel's `ib_verbs.h`).
const GRH_REQUIRED: u8 = 1;

/// The devices that libibverbs knows (ibv_get_device_list(3)).
pub(crate) struct DeviceList {
    list: NonNull<*mut ibv_device>,
    count: usize,
}

impl DeviceList {
    /// Lists the devices.
    ///
    /// # Errors
    /// ENOSYS if the kernel has no RDMA support, EPERM, ENOMEM.
    pub(crate) fn list() -> Result<DeviceList, Failure> {
        super::providers::register();
        let mut count = 0;
        // SAFETY: `count` is valid memory for one int; the list has that many devices until it is
        // freed.
        let list = made(unsafe { ibv_get_device_list(&mut count) })?;
        Ok(DeviceList { list, count: usize::try_from(count).unwrap_or(0) })
    }

    fn each(&self) -> impl Iterator<Item = (String, *mut ibv_device)> {
        (0..self.count).map(|index| {
            // SAFETY: the list has `count` devices, and their names live as long as the list.
            unsafe {
                let device = *self.list.as_ptr().add(index);
                let name = ibv_get_device_name(device);
                let name = if name.is_null() { "".into() } else { CStr::from_ptr(name).to_string_lossy() };
                (name.into_owned(), device)
            }
        })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.each().map(|(name, _)| name).collect()
    }

    /// Opens a device (ibv_open_device(3)). The caller must open the device's node first: libibverbs
    /// waits for five seconds if access to the node is denied.
    ///
    /// # Errors
    /// [`Failure::NoDevice`] if there is no such device, or the errors of open(2) on the device's node.
    pub(crate) fn open(&self, name: &str) -> Result<OpenDevice, Failure> {
        let Some((_, device)) = self.each().find(|(other, _)| other == name) else {
            return Err(Failure::NoDevice(name.to_owned()));
        };
        // SAFETY: the device belongs to a list that is not freed yet; an open device outlives
        // the list.
        made(unsafe { ibv_open_device(device) }).map(|context| OpenDevice { context })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list is freed only here.
        unsafe { ibv_free_device_list(self.list.as_ptr()) };
    }
}

/// An open device.
pub(crate) struct OpenDevice {
    context: NonNull<ibv_context>,
}

/// The transport of a device (`enum ibv_transport_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceTransport {
    /// The transport of InfiniBand and RoCE.
    InfiniBand,
    Iwarp,
    /// Any other transport, such as that of EFA.
    Other,
}

/// What a port reports (ibv_query_port(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port {
    pub active: bool,
    pub ethernet: bool,
    /// Whether packets need a global route header (GRH): on RoCE, or if the subnet manager says so.
    pub global: bool,
    pub lid: u16,
    /// The MTU in bytes; 0 if the device reports a number that verbs.h does not define.
    pub active_mtu: u32,
    pub max_mtu: u32,
    pub path_mtu: PathMtu,
    pub state: PortState,
}

/// The state of a port (`enum ibv_port_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PortState {
    #[error("DOWN")]
    Down,
    #[error("INIT")]
    Init,
    #[error("ARMED")]
    Armed,
    #[error("ACTIVE")]
    Active,
    #[error("ACTIVE_DEFER")]
    ActiveDefer,
    #[error("unknown")]
    Unknown,
}

/// The MTU of a path, as a value of `enum ibv_mtu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathMtu(pub(super) ibv_mtu::Type);

impl PathMtu {
    /// Returns the largest MTU that both ends support, if the other end's port has an MTU of this many
    /// bytes.
    pub(crate) fn with(self, bytes: u32) -> PathMtu {
        match bytes {
            256..=4096 if bytes.is_power_of_two() => PathMtu(self.0.min((bytes / 128).ilog2())),
            _ => self,
        }
    }
}

impl OpenDevice {
    pub(super) fn raw(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    pub(crate) fn transport(&self) -> DeviceTransport {
        // SAFETY: an open device points to its description, which lives as long as the device.
        match unsafe { (*(*self.raw()).device).transport_type } {
            ibv_transport_type::IBV_TRANSPORT_IB => DeviceTransport::InfiniBand,
            ibv_transport_type::IBV_TRANSPORT_IWARP => DeviceTransport::Iwarp,
            _ => DeviceTransport::Other,
        }
    }

    /// Returns the version of the firmware, and the number of ports (ibv_query_device(3)).
    ///
    /// # Errors
    /// ENODEV after the device was removed, and the driver's own errors.
    pub(crate) fn device(&self) -> Result<(String, u8), Failure> {
        // SAFETY: the attributes are plain data, for which all zeros are valid; the device is
        // open. The text ends within its array, because its last byte is zero.
        unsafe {
            let mut attributes: ibv_device_attr = zeroed();
            done(ibv_query_device(self.raw(), &mut attributes))?;
            attributes.fw_ver[63] = 0;
            let firmware = CStr::from_ptr(attributes.fw_ver.as_ptr()).to_string_lossy().into_owned();
            Ok((firmware, attributes.phys_port_cnt))
        }
    }

    /// Returns what a port reports.
    ///
    /// # Errors
    /// EINVAL if there is no such port, and the errors of [`OpenDevice::device`].
    pub(crate) fn port(&self, number: u8) -> Result<Port, Failure> {
        // SAFETY: the attributes are plain data, for which all zeros are valid; the device is
        // open.
        let port: ibv_port_attr = unsafe {
            let mut attributes = zeroed();
            done(___ibv_query_port(self.raw(), number, &mut attributes))?;
            attributes
        };
        let ethernet = port.link_layer == ETHERNET;
        Ok(Port {
            active: port.state == ibv_port_state::IBV_PORT_ACTIVE,
            ethernet,
            global: ethernet || port.flags & GRH_REQUIRED != 0,
            lid: port.lid,
            active_mtu: bytes(port.active_mtu),
            max_mtu: bytes(port.max_mtu),
            path_mtu: PathMtu(port.active_mtu),
            state: state(port.state),
        })
    }

    /// Returns an entry of the GID table (ibv_query_gid(3)); `None` if it is empty.
    ///
    /// # Errors
    /// The table has no entry with this index.
    pub(crate) fn gid(&self, port: u8, index: u8) -> Result<Option<Ipv6Addr>, Failure> {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the device is open, the pointer is valid, and `raw` covers every bit of a
        // GID.
        let raw = unsafe {
            done(ibv_query_gid(self.raw(), port, i32::from(index), &mut gid))?;
            gid.raw
        };
        Ok(Some(Ipv6Addr::from(raw)).filter(|gid| !gid.is_unspecified()))
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // SAFETY: the device is closed only here. Everything made from it borrows from this object, and
        // is already gone.
        unsafe { ibv_close_device(self.raw()) };
    }
}

fn bytes(mtu: ibv_mtu::Type) -> u32 {
    match mtu {
        ibv_mtu::IBV_MTU_256..=ibv_mtu::IBV_MTU_4096 => 128 << mtu,
        _ => 0,
    }
}

fn state(state: ibv_port_state::Type) -> PortState {
    match state {
        ibv_port_state::IBV_PORT_DOWN => PortState::Down,
        ibv_port_state::IBV_PORT_INIT => PortState::Init,
        ibv_port_state::IBV_PORT_ARMED => PortState::Armed,
        ibv_port_state::IBV_PORT_ACTIVE => PortState::Active,
        ibv_port_state::IBV_PORT_ACTIVE_DEFER => PortState::ActiveDefer,
        _ => PortState::Unknown,
    }
}
