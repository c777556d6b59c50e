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

/// What a start without a preflight takes from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::preflight) struct Found {
    /// As in [`Told`](crate::preflight::meet::message::Told).
    pub rails_apart: bool,
}

/// Follows the boot in the file if no rail reached another one.
const APART: &str = "\nrails-apart";

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

    /// Returns what the preflight has found that this node has passed before, if it has.
    pub(in crate::preflight) fn found(&self) -> Option<Found> {
        let file = self.folder.open_file(&self.file, OFlag::O_RDONLY, SFlag::S_IFREG).ok()?;
        let mut text = String::new();
        let longest = self.boot.len() + APART.len() + 1;
        file.take(longest as u64).read_to_string(&mut text).ok()?;
        match text.strip_prefix(&self.boot)? {
            "" => Some(Found { rails_apart: false }),
            APART => Some(Found { rails_apart: true }),
            _ => None,
        }
    }

    /// Remembers how the last preflight has ended, if this node has passed. Without a place to write to, the next
    /// one is as the first.
    pub(in crate::preflight) fn remember(&self, found: Option<Found>) {
        self.folder.remove(&self.file);
        if let Some(Found { rails_apart }) = found
            && let Ok((new, mut file)) = self.folder.create_beside(&self.file, Mode::S_IRUSR | Mode::S_IWUSR)
        {
            let text = format!("{}{}", self.boot, if rails_apart { APART } else { "" });
            let left = file.write_all(text.as_bytes()).and_then(|()| self.folder.rename(&new, &self.file));
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
        assert_eq!(first.found(), None);
        for rails_apart in [true, false] {
            first.remember(Some(Found { rails_apart }));
            assert_eq!(of(&part(1), "gpu-01", "boot").found(), Some(Found { rails_apart }));
        }
        let other = Part { job: Some("8".to_owned()), ..part(1) };
        let others = [(part(2), "gpu-01", "boot"), (part(1), "gpu-02", "boot"), (other, "gpu-01", "boot")];
        for (part, host, boot) in others.into_iter().chain([(part(1), "gpu-01", "a later boot")]) {
            assert_eq!(of(&part, host, boot).found(), None, "{part:?} {host} {boot}");
        }
        first.remember(None);
        assert_eq!(first.found(), None, "the last one counts");
        assert!(at(&part(1), "gpu-01", "").is_none());
    }
}
