//! A node that has passed remembers it for the life of its container or its job. If it is started again
//! alone, the other nodes are already running their commands, so no node is left to prove the fabric
//! with.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};

use crate::facts::identity::Identity;
use crate::preflight::who::local;
use crate::preflight::who::part::Part;
use crate::sys::directory::Directory;

/// How long a node that has passed before waits for the first other node.
pub(in crate::preflight) const PATIENCE: Duration = Duration::from_secs(60);

/// What stands for the passed preflight of one node of one job.
pub(in crate::preflight) struct Passed {
    folder: Directory,
    file: OsString,
    /// The boot ID of the machine: records from before this boot do not count.
    boot: String,
}

impl Passed {
    /// Returns `None` if nothing separates this job from others on this machine, or if there is no
    /// place for the record.
    pub(in crate::preflight) fn of(part: &Part, host: &str) -> Option<Passed> {
        let identity = Identity::own();
        (part.job.is_some() || identity.is_container()).then_some(())?;
        Passed::at(local::folder()?, part, host, &identity.boot)
    }

    fn at(folder: Directory, part: &Part, host: &str, boot: &str) -> Option<Passed> {
        let key = format!("{:?} {:?} {} {} {host}", part.job, part.meet, part.nodes, part.node);
        let digest = hmac_sha256::Hash::hash(key.as_bytes());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let boot = (!boot.is_empty()).then(|| boot.to_owned())?;
        Some(Passed { folder, file: format!("{name}.passed").into(), boot })
    }

    /// Returns whether this node has passed before.
    pub(in crate::preflight) fn is_known(&self) -> bool {
        let file = self.folder.open_file(&self.file, OFlag::O_RDONLY, SFlag::S_IFREG);
        let mut boot = String::new();
        let longest = self.boot.len() as u64 + 1;
        file.is_ok_and(|file| file.take(longest).read_to_string(&mut boot).is_ok()) && boot == self.boot
    }

    /// Remembers how the last preflight has ended. Without a place to write to, the next one is as the first.
    pub(in crate::preflight) fn remember(&self, passed: bool) {
        self.folder.remove(&self.file);
        if passed
            && let Ok((new, mut file)) = self.folder.create_beside(&self.file, Mode::S_IRUSR | Mode::S_IWUSR)
        {
            let left =
                file.write_all(self.boot.as_bytes()).and_then(|()| self.folder.rename(&new, &self.file));
            if left.is_err() {
                self.folder.remove(&new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(node: u32) -> Part {
        Part {
            nodes: 4,
            node,
            local_rank: 0,
            meet: Some("gpu-00".to_owned()),
            job: Some("7".to_owned()),
            names: Vec::new(),
            are_names_certain: false,
            evidence: Vec::new(),
        }
    }

    #[test]
    fn only_the_same_node_of_the_same_job_has_passed_before() {
        let folder = tempfile::tempdir().unwrap();
        let at =
            |part: &Part, host, boot| Passed::at(Directory::open(folder.path()).unwrap(), part, host, boot);
        let of = |part: &Part, host, boot| at(part, host, boot).unwrap();
        let first = of(&part(1), "gpu-01", "boot");
        assert!(!first.is_known());
        first.remember(true);
        assert!(of(&part(1), "gpu-01", "boot").is_known());
        let other = Part { job: Some("8".to_owned()), ..part(1) };
        let others = [(part(2), "gpu-01", "boot"), (part(1), "gpu-02", "boot"), (other, "gpu-01", "boot")];
        for (part, host, boot) in others.into_iter().chain([(part(1), "gpu-01", "a later boot")]) {
            assert!(!of(&part, host, boot).is_known(), "{part:?} {host} {boot}");
        }
        first.remember(false);
        assert!(!first.is_known(), "the last one counts");
        assert!(at(&part(1), "gpu-01", "").is_none());
    }
}
