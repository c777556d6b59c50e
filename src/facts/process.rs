//! Who this process is: user, capabilities, user namespace.

use serde::{Deserialize, Serialize};

use super::reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The effective user id.
    pub uid: u32,
    pub gid: u32,
    pub capabilities: Capabilities,
    /// A program with file capabilities or set-user-ID gains nothing.
    pub no_new_privs: bool,
    /// Whether ids are those of the machine. Where they are not, the kernel
    /// honours no capability for pinning memory.
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

/// A set, in JSON the hexadecimal mask that the kernel prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapabilitySet(pub u64);

impl CapabilitySet {
    pub fn has(self, capability: caps::Capability) -> bool {
        self.0 & (1 << capability.index()) != 0
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

pub fn read(reader: &Reader) -> Process {
    let status = reader.text("/proc/self/status").unwrap_or_default();
    let field = |name: &str| -> Option<&str> {
        status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    };
    let set = |name| field(name).and_then(|text| text.to_owned().try_into().ok()).unwrap_or_default();
    Process {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        capabilities: Capabilities {
            effective: set("CapEff"),
            permitted: set("CapPrm"),
            inheritable: set("CapInh"),
            bounding: set("CapBnd"),
            ambient: set("CapAmb"),
        },
        no_new_privs: field("NoNewPrivs") == Some("1"),
        initial_user_namespace: is_initial(&reader.text("/proc/self/uid_map").unwrap_or_default()),
    }
}

/// The initial namespace maps every id to itself.
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
