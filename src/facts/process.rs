//! The identity of this process: user, capabilities, user namespace.

use caps::CapSet;
use serde::{Deserialize, Serialize};

use super::reader::Reader;
use crate::sys::environ;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The effective user id.
    pub uid: u32,
    pub gid: u32,
    pub capabilities: Capabilities,
    /// Whether a program with file capabilities or set-user-ID gains nothing.
    pub no_new_privs: bool,
    /// Whether user IDs are the same as on the machine. If not, the kernel does not honor a capability for
    /// pinning memory.
    pub initial_user_namespace: bool,
}

/// Capability sets, as bit masks (`/proc/self/status`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    pub effective: CapabilitySet,
    pub permitted: CapabilitySet,
    pub inheritable: CapabilitySet,
    pub bounding: CapabilitySet,
    pub ambient: CapabilitySet,
}

/// A capability set; in JSON, the hexadecimal mask that the kernel prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapabilitySet(pub u64);

impl CapabilitySet {
    pub fn has(self, capability: caps::Capability) -> bool {
        self.0 & (1 << capability.index()) != 0
    }

    /// Returns the names as `docker run --cap-add` takes them.
    pub fn names(self) -> String {
        let all: Vec<caps::Capability> = caps::all().into_iter().collect();
        let mut names: Vec<String> =
            all.iter().filter(|one| self.has(**one)).map(ToString::to_string).collect();
        names.sort_unstable();
        match names.len() {
            0 => "none".to_owned(),
            count if count == all.len() => "all".to_owned(),
            _ => names.iter().map(|name| name.trim_start_matches("CAP_")).collect::<Vec<_>>().join(" "),
        }
    }

    pub fn with(self, capability: caps::Capability) -> CapabilitySet {
        CapabilitySet(self.0 | (1 << capability.index()))
    }
}

impl TryFrom<String> for CapabilitySet {
    type Error = String;

    fn try_from(text: String) -> Result<CapabilitySet, String> {
        u64::from_str_radix(text.trim(), 16)
            .map(CapabilitySet)
            .map_err(|_| format!("{text:?} is not a hexadecimal capability mask"))
    }
}

impl From<CapabilitySet> for String {
    fn from(set: CapabilitySet) -> String {
        format!("{:016x}", set.0)
    }
}

/// The warning if the C library has removed entries from the environment that cannot be recovered.
const CUT: &str = "the C library takes LD_LIBRARY_PATH, LD_PRELOAD, TMPDIR and others from a program whose file has a capability (setcap), and the memory of this process does not show them any more: the command starts without them";

/// The number of lines to read from `/proc/self/status` after the first capability set (`fs/proc/array.c`,
/// `proc_pid_status`): five sets and NoNewPrivs, with room for lines that a later kernel may add.
const FIELDS: usize = 12;

pub(crate) fn read(reader: &Reader) -> Process {
    // Only its fields are parsed; the rest is not shown.
    let status = reader.exact_text_unless("/proc/self/status", &[]).unwrap_or_default();
    if status.is_empty() {
        reader.remember(&reader.path("/proc/self/status"), "it does not exist; is /proc mounted?");
    }
    if !environ::is_whole() {
        reader.remember(&reader.path("/proc/self/environ"), CUT);
    }
    // The capability lines are adjacent, and the file has fifty more lines.
    let fields = status.find("\nCapInh:").and_then(|start| status.get(start..)).unwrap_or_default();
    let fields: Vec<(&str, &str)> =
        fields.lines().take(FIELDS).filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.trim());
    let set = |name, kind| {
        let told = field(name).and_then(|text| text.to_owned().try_into().ok());
        told.unwrap_or_else(|| asked(kind))
    };
    Process {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        capabilities: Capabilities {
            effective: set("CapEff", CapSet::Effective),
            permitted: set("CapPrm", CapSet::Permitted),
            inheritable: set("CapInh", CapSet::Inheritable),
            bounding: set("CapBnd", CapSet::Bounding),
            ambient: set("CapAmb", CapSet::Ambient),
        },
        no_new_privs: field("NoNewPrivs") == Some("1"),
        // If /proc does not show the map, a later step tries to pin memory.
        initial_user_namespace: reader.text("/proc/self/uid_map").is_none_or(|map| is_initial(&map)),
    }
}

/// Reads a capability set with a system call, for a container without /proc.
fn asked(kind: CapSet) -> CapabilitySet {
    let held = caps::read(None, kind).unwrap_or_default();
    held.into_iter().fold(CapabilitySet::default(), CapabilitySet::with)
}

/// Returns whether this is the map of the initial user namespace, which maps every ID to itself.
fn is_initial(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_user_namespace_maps_everything() {
        assert!(is_initial("         0          0 4294967295"));
        assert!(!is_initial("         0     100000      65536"));
        assert!(!is_initial(""));
    }

    #[test]
    fn a_set_is_the_mask_that_the_kernel_prints() {
        let docker: CapabilitySet = "00000000a80425fb".to_owned().try_into().unwrap();
        assert!(docker.has(caps::Capability::CAP_KILL));
        assert!(!docker.has(caps::Capability::CAP_IPC_LOCK));
        assert!(docker.with(caps::Capability::CAP_IPC_LOCK).has(caps::Capability::CAP_IPC_LOCK));
        assert_eq!(String::from(docker), "00000000a80425fb");
        assert!(CapabilitySet::try_from("CAP_KILL".to_owned()).is_err());
    }
}
