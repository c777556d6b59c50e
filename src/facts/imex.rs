//! IMEX channels: the device files through which processes share GPU memory with other nodes of an NVLink
//! domain (`kernel-open/nvidia/nv-caps-imex.c` in NVIDIA's open kernel modules).
//!
//! The driver's files do not show whether this node's GPUs have joined a domain, nor to which of its cliques
//! they belong. Only NVML does (`nvmlDeviceGetGpuFabricInfoV`), and a static program cannot load NVML safely.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;

use nix::libc;
use serde::{Deserialize, Serialize};

use super::node::{Access, try_open};
use super::reader::Reader;

const FOLDER: &str = "/dev/nvidia-caps-imex-channels";

/// The name of the channels' driver in `/proc/devices`.
const DRIVER: &str = "nvidia-caps-imex-channels";

/// The most channels to open; a container may have all 2,048.
const MOST: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Imex {
    /// The first channels of this container, in the order of their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ImexChannel>,
    /// The number of channels in this container.
    pub count: usize,
    /// The number of channels that the driver supports (`ImexChannelCount` in `/proc/driver/nvidia/params`);
    /// `None` if the driver is too old for channels, or its files are hidden here.
    pub of_driver: Option<u32>,
    /// The major number that the driver uses for its channels now (`/proc/devices`).
    pub major: Option<u32>,
    /// Whether the driver shows the capability for the daemon that joins a domain
    /// (`/proc/driver/nvidia/capabilities/fabric-imex-mgmt`). Only the host's /proc shows it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub manageable: bool,
}

/// A device file `/dev/nvidia-caps-imex-channels/channelN`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImexChannel {
    /// The channel's number. The processes of a job that share memory must all use the same channel.
    pub number: u32,
    pub access: Access,
    /// The major number of the device file; `None` if this is not a character device.
    pub major: Option<u32>,
}

impl Imex {
    /// Returns whether the driver would accept this channel.
    pub fn is_usable(&self, channel: &ImexChannel) -> bool {
        channel.access == Access::Opened && !self.is_stale(channel)
    }

    /// Returns whether the driver rejects the file, because the file is not a character device, or has a
    /// major number that the driver no longer uses (`nv_caps_imex_channel_get`).
    pub fn is_stale(&self, channel: &ImexChannel) -> bool {
        self.major.is_some() && channel.major != self.major
    }

    /// Returns the channels that a process of this container can use.
    pub fn usable(&self) -> impl Iterator<Item = &ImexChannel> {
        self.channels.iter().filter(|channel| self.is_usable(channel))
    }

    pub fn is_empty(&self) -> bool {
        *self == Imex::default()
    }
}

/// Reads the channels of this container, and what the driver reports about its own.
pub(crate) fn read(reader: &Reader) -> Imex {
    let mut numbers = Vec::new();
    reader.each_name(FOLDER, |name| {
        numbers.extend(name.strip_prefix("channel").and_then(|number| number.parse::<u32>().ok()));
    });
    numbers.sort_unstable();
    let parameters = reader.text_if_readable("/proc/driver/nvidia/params").unwrap_or_default();
    let devices = reader.text_if_readable("/proc/devices").unwrap_or_default();
    Imex {
        count: numbers.len(),
        channels: numbers.into_iter().take(MOST).map(|number| channel(reader, number)).collect(),
        of_driver: parameters
            .lines()
            .find_map(|line| line.strip_prefix("ImexChannelCount:")?.trim().parse().ok()),
        major: devices.lines().find_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            (name == DRIVER).then(|| major.parse().ok()).flatten()
        }),
        manageable: reader.may_be_there("/proc/driver/nvidia/capabilities/fabric-imex-mgmt")
            && !parameters.is_empty(),
    }
}

fn channel(reader: &Reader, number: u32) -> ImexChannel {
    let path = format!("{FOLDER}/channel{number}");
    let status = fs::metadata(reader.path(&path)).ok();
    let device = status.filter(|status| status.file_type().is_char_device());
    ImexChannel {
        number,
        // Opening a channel has no effect: the driver checks the channel only when a process exports memory.
        access: try_open(reader, &path),
        major: device.map(|device| libc::major(device.rdev())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    fn read_below(root: &FakeRoot) -> Imex {
        read(&root.reader())
    }

    #[test]
    fn channels_are_numbers_and_only_the_first_are_opened() {
        let root = FakeRoot::new();
        assert!(read_below(&root).is_empty());
        root.folder("dev/nvidia-caps-imex-channels");
        assert!(read_below(&root).is_empty(), "an empty folder has no channel");
        // Opening a FIFO would block until another process opens its other end.
        for number in 0..20 {
            let channel = root.path(&format!("dev/nvidia-caps-imex-channels/channel{number}"));
            nix::unistd::mkfifo(&channel, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        root.file("dev/nvidia-caps-imex-channels/channels", "");
        let found = read_below(&root);
        assert_eq!((found.count, found.channels.len()), (20, MOST));
        assert_eq!(found.channels[2], ImexChannel { number: 2, access: Access::Opened, major: None });
        assert_eq!(found.usable().count(), MOST, "nothing is known of the driver");
    }

    #[test]
    fn the_driver_tells_how_many_there_are_and_their_major_number() {
        let root = FakeRoot::new();
        root.file(
            "proc/driver/nvidia/params",
            "EnableMSI: 1\nImexChannelCount: 2048\nCreateImexChannel0: 0\n",
        );
        root.file(
            "proc/devices",
            "Character devices:\n  1 mem\n195 nvidia\n498 nvidia-caps-imex-channels\n\nBlock devices:\n",
        );
        root.file("dev/nvidia-caps-imex-channels/channel0", "");
        let found = read_below(&root);
        assert_eq!((found.of_driver, found.major, found.manageable), (Some(2048), Some(498), false));
        // The driver rejects a regular file.
        assert!(found.is_stale(&found.channels[0]) && found.usable().next().is_none());
        let other = ImexChannel { major: Some(497), ..ImexChannel::default() };
        assert!(found.is_stale(&other));
        assert!(!found.is_stale(&ImexChannel { major: Some(498), ..ImexChannel::default() }));
        root.file("proc/driver/nvidia/capabilities/fabric-imex-mgmt", "DeviceFileMinor: 4323\n");
        assert!(read_below(&root).manageable);
    }
}
