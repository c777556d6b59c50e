//! Opening a device and registering memory with it.

use std::ffi::CStr;

use nix::errno::Errno;
use rdma_sys::{
    ibv_access_flags, ibv_alloc_pd, ibv_close_device, ibv_context, ibv_dealloc_pd, ibv_dereg_mr, ibv_device,
    ibv_free_device_list, ibv_get_device_list, ibv_get_device_name, ibv_open_device, ibv_reg_mr,
};
use serde::Serialize;

/// Bytes registered with each device.
const SIZE: usize = 1024 * 1024;

/// What came of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    pub device: String,
    /// Bytes of memory that could be registered; 0 after an error.
    pub registered: usize,
    /// The step that failed, and why.
    pub error: Option<String>,
}

/// Probes every device that libibverbs knows.
pub fn all() -> Vec<Probe> {
    super::providers::register();
    let mut count = 0;
    // SAFETY: `count` is a valid place for one int; the list is null or holds
    // `count` devices until it is freed.
    unsafe {
        let list = ibv_get_device_list(&mut count);
        if list.is_null() {
            return Vec::new();
        }
        let count = usize::try_from(count).unwrap_or(0);
        let probes = (0..count).map(|index| one(*list.add(index))).collect();
        ibv_free_device_list(list);
        probes
    }
}

/// # Safety
/// `device` must be of a device list that is not freed yet.
unsafe fn one(device: *mut ibv_device) -> Probe {
    // SAFETY: the caller vouches for the device; its name lives as long.
    let name = unsafe {
        let name = ibv_get_device_name(device);
        if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
    };
    // SAFETY: the caller vouches for the device.
    let context = unsafe { ibv_open_device(device) };
    if context.is_null() {
        return Probe { device: name, registered: 0, error: Some(failed("ibv_open_device")) };
    }
    // SAFETY: the context was just opened, and is closed only here.
    let registered = unsafe {
        let registered = register(context);
        ibv_close_device(context);
        registered
    };
    match registered {
        Ok(registered) => Probe { device: name, registered, error: None },
        Err(error) => Probe { device: name, registered: 0, error: Some(error) },
    }
}

/// # Safety
/// `context` must be open.
unsafe fn register(context: *mut ibv_context) -> Result<usize, String> {
    let mut memory = vec![0u8; SIZE];
    // SAFETY: the context is open; the memory outlives the registration, which
    // ends before the protection domain does.
    unsafe {
        let pd = ibv_alloc_pd(context);
        if pd.is_null() {
            return Err(failed("ibv_alloc_pd"));
        }
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        let mr = ibv_reg_mr(pd, memory.as_mut_ptr().cast(), SIZE, access as i32);
        let result = if mr.is_null() { Err(failed("ibv_reg_mr")) } else { Ok(SIZE) };
        if !mr.is_null() {
            ibv_dereg_mr(mr);
        }
        ibv_dealloc_pd(pd);
        result
    }
}

fn failed(call: &str) -> String {
    format!("{call}: {}", crate::facts::reader::describe(Errno::last()))
}
