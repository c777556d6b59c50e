//! A machine with several HCAs, one rail each, whose counters and states a test changes while a job runs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::one_hca::{EMPTY, Host};
use super::ras::SteppedServer;

pub struct Rails {
    host: Host,
    /// The name of the HCA of each rail.
    names: Vec<String>,
    is_infiniband: bool,
    /// The files of each rail that were written, by their names.
    files: Vec<HashMap<String, Open>>,
    /// Where the job finds scripts, and leaves files.
    place: TempDir,
    /// For how long nothing of the job is to run.
    pub frozen: Option<Duration>,
    /// The signal that all of its processes are to get.
    pub signal: Option<i32>,
    /// NCCL's RAS, as the watcher finds it.
    pub ras: Option<SteppedServer>,
}

/// A file that stays open, how much of it is not blank, and its number if it is a counter.
struct Open {
    file: fs::File,
    length: usize,
    count: u64,
}

impl Open {
    /// Nothing of the program runs meanwhile. Blanks stand for what there was more before.
    fn write(&mut self, text: &str) {
        let length = text.len() + 1;
        let width = length.max(self.length);
        self.file.write_all_at(format!("{text:\n<width$}").as_bytes(), 0).unwrap();
        self.length = length;
    }
}

pub const RATE: &str = "400 Gb/sec (4X NDR)";

impl Rails {
    /// Rails of InfiniBand.
    pub fn infiniband(count: usize) -> Rails {
        Rails::of(count, true)
    }

    /// Rails of RoCE, with a GID for an address each, at index 1.
    pub fn roce(count: usize) -> Rails {
        Rails::of(count, false)
    }

    fn of(count: usize, is_infiniband: bool) -> Rails {
        let host = if is_infiniband { Host::with_infiniband() } else { Host::new() };
        let names = (0..count).map(|number| format!("mlx5_{number}")).collect();
        let mut rails = Rails {
            host,
            names,
            is_infiniband,
            files: (0..count).map(|_| HashMap::new()).collect(),
            place: tempfile::tempdir().unwrap(),
            frozen: None,
            signal: None,
            ras: None,
        };
        for rail in 0..count {
            rails.add(rail);
        }
        rails
    }

    fn add(&mut self, rail: usize) {
        let name = &self.names[rail];
        self.host.write(&format!("class/infiniband/{name}/node_type"), "1: CA");
        self.host.write(
            &format!("class/infiniband/{name}/node_guid"),
            &format!("0002:c903:0000:{:04x}", rail + 1),
        );
        self.host.write(&format!("class/infiniband_verbs/uverbs{rail}/ibdev"), name);
        let (layer, lid) = if self.is_infiniband {
            ("InfiniBand", format!("{:#x}", rail + 1))
        } else {
            ("Ethernet", "0x0".to_owned())
        };
        for (file, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", RATE),
            ("link_layer", layer),
            ("lid", &lid),
            ("gids/0", EMPTY),
            ("gids/1", &gid(rail)),
            ("gids/2", EMPTY),
            ("gid_attrs/types/1", "RoCE v2"),
            ("gid_attrs/ndevs/1", "lo"),
        ] {
            self.set(rail, file, text);
        }
        for counter in [
            "port_xmit_data",
            "port_rcv_data",
            "link_downed",
            "link_error_recovery",
            "symbol_error",
            "port_rcv_errors",
            "local_link_integrity_errors",
            "excessive_buffer_overrun_errors",
        ] {
            self.count(rail, &format!("counters/{counter}"), 0);
        }
        for counter in [
            "req_transport_retries_exceeded",
            "local_ack_timeout_err",
            "packet_seq_err",
            "out_of_sequence",
            "rnr_nak_retry_err",
            "roce_adp_retrans",
        ] {
            self.count(rail, &format!("hw_counters/{counter}"), 0);
        }
    }

    pub fn all(&self) -> std::ops::Range<usize> {
        0..self.names.len()
    }

    /// The folder of the devices.
    pub fn class(&self) -> PathBuf {
        self.host.folder.path().join("sys/class/infiniband")
    }

    /// A folder that the job sees, too.
    pub fn place(&self) -> PathBuf {
        self.place.path().to_owned()
    }

    fn port(&self, rail: usize) -> PathBuf {
        self.class().join(&self.names[rail]).join("ports/1")
    }

    fn open(&mut self, rail: usize, file: &str) -> &mut Open {
        if !self.files[rail].contains_key(file) {
            let path = self.port(rail).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let opened = fs::OpenOptions::new().write(true).create(true).truncate(true).open(path).unwrap();
            self.files[rail].insert(file.to_owned(), Open { file: opened, length: 0, count: 0 });
        }
        self.files[rail].get_mut(file).unwrap()
    }

    /// Changes a file of a port.
    pub fn set(&mut self, rail: usize, file: &str, text: &str) {
        self.open(rail, file).write(text);
    }

    /// Sets a counter.
    pub fn count(&mut self, rail: usize, counter: &str, value: u64) {
        let open = self.open(rail, counter);
        open.count = value;
        open.write(&value.to_string());
    }

    /// Lets a counter rise.
    pub fn rise(&mut self, rail: usize, counter: &str, by: u64) {
        let value = self.open(rail, counter).count.wrapping_add(by);
        if by > 0 {
            self.count(rail, counter, value);
        }
    }

    pub fn counted(&mut self, rail: usize, counter: &str) -> u64 {
        self.open(rail, counter).count
    }

    /// Lets these bytes go in both directions.
    pub fn move_bytes(&mut self, rail: usize, bytes: u64) {
        // The unit of the counter is four bytes.
        for counter in ["counters/port_xmit_data", "counters/port_rcv_data"] {
            self.rise(rail, counter, bytes / 4);
        }
    }

    /// Lets these bytes go over each rail.
    pub fn move_all(&mut self, bytes: u64) {
        for rail in self.all() {
            self.move_bytes(rail, bytes);
        }
    }

    pub fn down(&mut self, rail: usize) {
        self.set(rail, "state", "1: DOWN");
        self.set(rail, "phys_state", "3: Disabled");
        self.rise(rail, "counters/link_downed", 1);
    }

    pub fn up(&mut self, rail: usize) {
        self.set(rail, "state", "4: ACTIVE");
        self.set(rail, "phys_state", "5: LinkUp");
    }

    /// Removes the device, whose name it keeps for [`Rails::bring_back`].
    pub fn take_away(&mut self, rail: usize) {
        fs::rename(self.class().join(&self.names[rail]), self.host.folder.path().join(&self.names[rail]))
            .unwrap();
    }

    pub fn bring_back(&mut self, rail: usize) {
        fs::rename(self.host.folder.path().join(&self.names[rail]), self.class().join(&self.names[rail]))
            .unwrap();
    }

    /// Gives a device another name.
    pub fn rename(&mut self, rail: usize, name: &str) {
        fs::rename(self.class().join(&self.names[rail]), self.class().join(name)).unwrap();
        fs::write(
            self.host.folder.path().join(format!("sys/class/infiniband_verbs/uverbs{rail}/ibdev")),
            format!("{name}\n"),
        )
        .unwrap();
        name.clone_into(&mut self.names[rail]);
    }

    /// Removes a file or a folder of a port.
    pub fn remove(&mut self, rail: usize, file: &str) {
        let path = self.port(rail).join(file);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap();
        self.files[rail].retain(|name, _| !name.starts_with(file));
    }

    /// Makes a shell that shows this machine to a start of the program with these arguments.
    pub fn shows(&self, arguments: &[&str]) -> Command {
        let mut how = String::new();
        for rail in self.all().skip(1).filter(|_| !self.is_infiniband) {
            how.push_str(&format!("ip addr add 10.9.0.{}/24 dev lo; ", rail + 1));
        }
        for rail in self.all().skip(1) {
            how.push_str(&format!(": >/dev/infiniband/uverbs{rail}; "));
        }
        let mut command = self.host.shows(&format!("{how} exec"), arguments);
        command.env_remove("RDMA_INIT_WATCH_INTERVAL");
        command
    }
}

/// The GID of a rail's address.
pub fn gid(rail: usize) -> String {
    format!("0000:0000:0000:0000:0000:ffff:0a09:{:04x}", rail + 1)
}
