//! A machine with one HCA, of directories that stand in for those of the kernel, and jobs on it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use nix::libc;
use tempfile::TempDir;

use super::running::{Running, after, as_pid_1, from_scratch, rdma_init};

/// A command that waits to be stopped.
pub const WAITS: [&str; 4] = ["--", "sh", "-c", "echo ready; exec sleep 1000"];

/// A machine with one HCA, mlx5_0: for RoCE, whose GID of its address is at index 1, or for InfiniBand.
pub struct Host {
    pub folder: TempDir,
    is_infiniband: bool,
}

pub const OWN: &str = "0000:0000:0000:0000:0000:ffff:0a09:0001";
pub const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

impl Host {
    pub fn new() -> Host {
        // A file of the disk may have to wait for seconds until something else is written.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let host = Host { folder: folder.unwrap(), is_infiniband: false };
        for folder in ["class/net", "fs/cgroup", "firmware"] {
            fs::create_dir_all(host.folder.path().join("sys").join(folder)).unwrap();
        }
        host.write("class/infiniband/mlx5_0/node_type", "1: CA");
        host.write("class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
        for (file, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "200 Gb/sec (4X HDR)"),
            ("link_layer", "Ethernet"),
            ("lid", "0x0"),
            ("counters/port_xmit_data", "0"),
            ("counters/port_rcv_data", "0"),
            ("hw_counters/req_transport_retries_exceeded", "0"),
            ("gids/0", EMPTY),
            ("gids/1", OWN),
            ("gids/2", EMPTY),
            ("gid_attrs/types/1", "RoCE v2"),
            ("gid_attrs/ndevs/1", "lo"),
        ] {
            host.port(file, text);
        }
        host
    }

    pub fn with_infiniband() -> Host {
        let host = Host { is_infiniband: true, ..Host::new() };
        host.port("link_layer", "InfiniBand");
        host.port("lid", "0x1");
        host
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut text = format!("{text}\n");
        let Ok(file) = fs::OpenOptions::new().write(true).open(&path) else {
            return fs::write(&path, text).unwrap();
        };
        // At once and in the same file, as the kernel changes it: it is never empty, and may be open. Blanks stand for
        // what the text had more before.
        let length = file.metadata().unwrap().len() as usize;
        text.extend(std::iter::repeat_n('\n', length.saturating_sub(text.len())));
        file.write_all_at(text.as_bytes(), 0).unwrap();
    }

    /// Changes a file of the port.
    pub fn port(&self, file: &str, text: &str) {
        self.write(&format!("class/infiniband/mlx5_0/ports/1/{file}"), text);
    }

    /// Makes a shell that shows this host to a start of the program with these arguments, by `how`.
    pub fn shows(&self, how: &str, arguments: &[&str]) -> Command {
        let mut ours = rdma_init(arguments);
        ours.env("RDMA_INIT_WATCH_INTERVAL", "100ms");
        let first = format!(
            "mount --rbind {}/sys /sys; mount -t tmpfs tmpfs /dev; mkdir /dev/infiniband /dev/shm; mknod -m 666 /dev/null c 1 3; \
             : >/dev/infiniband/uverbs0;",
            self.folder.path().display()
        );
        if self.is_infiniband {
            return after(&format!("{first} {how}"), ours);
        }
        // The loopback interface of a network namespace of its own has the address of the GID.
        let inner = after(&format!("{first} ip addr add 10.9.0.1/24 dev lo; ip link set lo up; {how}"), ours);
        let mut outer = Command::new("unshare");
        outer.arg("--net").arg(inner.get_program()).args(inner.get_args());
        outer.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        from_scratch(&mut outer);
        outer
    }

    /// Starts a job that waits to be stopped, with the program as PID 1.
    pub fn job(&self, options: &[&str]) -> Running {
        let mut running = as_pid_1(self.shows("exec", &[options, &WAITS].concat()));
        running.wait_for("ready");
        running
    }
}

/// Stops the job, and returns what was said on standard error.
pub fn stop(running: Running) -> String {
    running.kill(libc::SIGTERM);
    running.end().expect_code(143).stderr
}
