//! Identifies one start of one container: rdma-init must not use files that an earlier start has left in a
//! directory.

use std::fs;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::facts::reader::of_kernel;

/// The same for all processes of a container, and different after each start of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The boot of the machine (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// The PID namespace, such as `pid:[4026531836]`.
    pub namespace: String,
    /// The mount namespace, such as `mnt:[4026532204]`: two containers may share both a PID namespace and a
    /// directory.
    pub mounts: String,
    /// The start time of the container's PID 1, in ticks of the machine's clock. It is 0 for the machine's
    /// own PID 1, which starts once for each `boot`. `None` if the kernel hides it (`hidepid`, proc(5)).
    pub init_started: Option<u64>,
}

impl Identity {
    /// Returns the identity of this process. Reads it only once.
    pub fn own() -> &'static Identity {
        static OWN: OnceLock<Identity> = OnceLock::new();
        OWN.get_or_init(Identity::read)
    }

    fn read() -> Identity {
        let text = |path| of_kernel(path).unwrap_or_default();
        let namespace_of_pids = namespace("pid");
        Identity {
            boot: text("/proc/sys/kernel/random/boot_id").trim_end().to_owned(),
            mounts: namespace("mnt"),
            init_started: if namespace_of_pids == OF_MACHINE { Some(0) } else { started(1) },
            namespace: namespace_of_pids,
        }
    }

    /// Returns whether both belong to the same start. This tells starts apart, but is not proof: any process
    /// can read and copy an identity. An identity with a missing field matches no other.
    pub fn is(&self, other: &Identity) -> bool {
        self.is_whole() && self == other
    }

    /// Returns whether both are the same start except for the mount namespace: either its processes are in
    /// two mount namespaces (`unshare --mount`), or two containers share a PID namespace.
    pub(crate) fn has_other_mounts(&self, other: &Identity) -> bool {
        let same_mounts = Identity { mounts: self.mounts.clone(), ..other.clone() };
        other.is_whole() && self.mounts != other.mounts && self.is(&same_mounts)
    }

    /// Returns whether no field is missing.
    pub(crate) fn is_whole(&self) -> bool {
        let parts = [&self.boot, &self.namespace, &self.mounts];
        parts.iter().all(|part| !part.is_empty()) && self.init_started.is_some()
    }
}

/// Returns this process's namespace of a kind, such as `pid:[4026531836]`.
pub(crate) fn namespace(kind: &str) -> String {
    let link = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
    link.to_string_lossy().into_owned()
}

/// The machine's own PID namespace: `PROC_PID_INIT_INO` in the kernel's `include/linux/proc_ns.h`, which is
/// part of the kernel's interface.
const OF_MACHINE: &str = "pid:[4026531836]";

impl Identity {
    /// Returns whether this is a container with its own PID namespace. If it is not, other jobs may run here,
    /// now or later.
    pub fn is_container(&self) -> bool {
        !self.namespace.is_empty() && self.namespace != OF_MACHINE
    }
}

/// Returns the start time of a process, in ticks since the machine was started (proc(5), field 22 of
/// `/proc/PID/stat`). `None` if the process does not exist, has ended and was not reaped, or is hidden.
pub(crate) fn started(pid: i32) -> Option<u64> {
    let text = of_kernel(format!("/proc/{pid}/stat"))?;
    // The program's name may contain anything, even a parenthesis.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    fields.next().filter(|state| !["Z", "X"].contains(state))?;
    fields.nth(18)?.parse().ok()
}

/// Returns the parent of a process.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let text = of_kernel(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Returns how long ago that was, in seconds; `None` if it is not known.
pub(crate) fn age(started: u64) -> Option<u64> {
    Some(now()?.saturating_sub(started) / ticks_per_second()?)
}

/// Returns the current time on the clock of [`started`].
pub(crate) fn now() -> Option<u64> {
    let uptime = of_kernel("/proc/uptime")?;
    let (seconds, rest) = uptime.split_whitespace().next()?.split_once('.')?;
    // The kernel writes hundredths of a second (proc(5)).
    let hundredths = seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(rest.parse().ok()?)?;
    Some(hundredths.checked_mul(ticks_per_second()?)? / 100)
}

fn ticks_per_second() -> Option<u64> {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_start_is_another_one() {
        let own = Identity::own();
        assert!(own.is(&Identity::read()));
        for other in [
            Identity { boot: "another".into(), ..own.clone() },
            Identity { namespace: "pid:[1]".into(), ..own.clone() },
            Identity { mounts: "mnt:[1]".into(), ..own.clone() },
            Identity { init_started: own.init_started.map(|ticks| ticks + 1), ..own.clone() },
        ] {
            assert!(!own.is(&other));
        }
        let unshared = Identity { mounts: "mnt:[1]".into(), ..own.clone() };
        assert!(own.has_other_mounts(&unshared) && !own.has_other_mounts(own));
        for other in [
            Identity { boot: "another".into(), ..unshared.clone() },
            Identity { init_started: None, ..unshared.clone() },
            Identity { mounts: String::new(), ..own.clone() },
        ] {
            assert!(!own.has_other_mounts(&other));
        }
        for missing in [
            Identity { boot: String::new(), ..own.clone() },
            Identity { namespace: String::new(), ..own.clone() },
            Identity { mounts: String::new(), ..own.clone() },
            Identity { init_started: None, ..own.clone() },
            Identity::default(),
        ] {
            assert!(!missing.is(&missing) && !own.is(&missing) && !missing.is(own));
        }
    }

    #[test]
    fn a_process_has_a_start_as_long_as_it_is_there() {
        let own = started(std::process::id() as i32).unwrap();
        assert!(age(own).unwrap() < 3600);
        assert_eq!(started(i32::MAX), None);
    }
}
