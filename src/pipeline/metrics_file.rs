//! The file that the watcher keeps for node_exporter's textfile collector.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::unistd::gethostname;

use crate::facts::port_look::PortLook;
use crate::facts::port_sample::{PortSample, Sampler};
use crate::facts::reader::describe;
use crate::report::metrics::{self, Exposition};
use crate::state::folder::Folder;
use crate::text::visible;
use crate::watch::{Standing, WatchedPort};

/// node_exporter has a user of its own.
const MODE: u32 = 0o644;

pub(super) struct MetricsFile {
    path: PathBuf,
    has_told: bool,
    sampler: Sampler,
}

impl MetricsFile {
    pub(super) fn new(path: PathBuf) -> MetricsFile {
        MetricsFile { path, has_told: false, sampler: Sampler::new(Path::new("/")) }
    }

    /// Writes what the ports show now, all at once: a reader finds the old text or the new one. A port that is gone
    /// has no metrics. Returns what to say of the first failure.
    pub(super) fn renew(
        &mut self,
        ports: &[WatchedPort],
        looks: &[PortLook],
        standing: &Standing,
        is_up: bool,
    ) -> Option<String> {
        let text = self.text(ports, looks, standing, is_up);
        let why = write(&self.path, &text).err()?;
        let is_first = !std::mem::replace(&mut self.has_told, true);
        is_first.then(|| {
            let path = visible(&self.path.display().to_string());
            let why = match (why, folder(&self.path)) {
                (Errno::ENOENT, folder) if !folder.exists() => {
                    let folder = visible(&folder.display().to_string());
                    format!("the directory {folder} does not exist in this container. Mount it, or name another file")
                }
                (errno, _) => describe(errno),
            };
            format!(
                "cannot write the metrics to {path} (watch-metrics): {why}. rdma-init tries again at each look, and does not repeat this message."
            )
        })
    }

    fn text(
        &mut self,
        ports: &[WatchedPort],
        looks: &[PortLook],
        standing: &Standing,
        is_up: bool,
    ) -> Vec<u8> {
        let there = ports.iter().zip(looks).filter(|(_, look)| !look.errors.is_gone());
        let named = there
            .map(|(port, look)| (look.renamed.as_deref().unwrap_or(&port.rail.hca), port.rail.port, look));
        let samples: Vec<PortSample> = self.sampler.sample(named);
        let mut text = Vec::new();
        // Memory takes anything.
        let _ = metrics::write(&mut text, &samples, Exposition::Prometheus);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = gethostname().unwrap_or_default();
        let _ = metrics::write_watcher(&mut text, &host.to_string_lossy(), now, standing, is_up);
        text
    }
}

fn write(path: &Path, text: &[u8]) -> Result<(), Errno> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(Errno::EINVAL)?;
    Folder::shared(folder(path))?.write(name, text, MODE)
}

/// Returns the directory of a file.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use crate::finding::{Id, Severity};

    #[test]
    fn the_file_is_replaced_as_a_whole_and_an_error_is_told_once() {
        let findings = [((Id::LinkDown, Severity::Info), 2)].into();
        let standing = Standing { rested: Some(Duration::from_secs(7)), findings: &findings };
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("rdma.prom");
        let mut file = MetricsFile::new(path.clone());
        assert_eq!(file.renew(&[], &[], &standing, true), None);
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let mut reader = fs::File::open(&path).unwrap();
        assert_eq!(file.renew(&[], &[], &standing, true), None);
        assert_eq!(
            std::io::read_to_string(&mut reader).unwrap(),
            "old",
            "a reader that has the old file open keeps its text"
        );
        let text = fs::read_to_string(&path).unwrap();
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let [up, looked_at, moved_at, found] = &values[..] else { panic!("{text}") };
        assert!(up.starts_with("rdma_init_watcher_up{host=\"") && up.ends_with("\"} 1"), "{text}");
        assert!(found.ends_with("id=\"link-down\",severity=\"info\"} 2"), "{text}");
        let seconds = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        assert_eq!(seconds(looked_at) - seconds(moved_at), 7);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, MODE);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left");

        let mut file = MetricsFile::new("/no/such/folder/rdma.prom".into());
        let message = file.renew(&[], &[], &standing, true).unwrap();
        assert!(
            message.starts_with("cannot write the metrics to /no/such/folder/rdma.prom (watch-metrics): the directory /no/such/folder does not exist in this container. Mount it, or name another file. rdma-init tries again"),
            "{message}"
        );
        assert_eq!(file.renew(&[], &[], &standing, true), None);
    }
}
