//! A container's root directory: an image, and a writable layer on top.
//!
//! The image is this machine's root file system with an added directory of files, and the layer is an
//! overlay. So a start writes its state where a start in a container does, and nothing on this machine
//! changes.

use std::ffi::CString;
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::libc;
use rdma_init::facts::Facts;

use super::host::Host;

/// What a start writes into a layer.
const STATE: &str = "run/rdma-init";
const NCCL_CONF: &str = "etc/nccl.conf";

/// The directory with the files that the image adds.
const ADDED: &str = "/added";

pub struct Image {
    /// Has the files in `added`. It is a separate mount, and all other mounts are below it.
    folder: PathBuf,
    /// For layers on a tmpfs.
    memory: PathBuf,
}

/// A root directory for commands: an image with a layer.
pub struct Root {
    path: PathBuf,
    c_path: CString,
}

impl Image {
    /// Makes an image with these files. Call it once, before anything else: from then on, the mounts of
    /// this process are private, and disappear with it.
    ///
    /// # Errors
    /// The process is not root, or the kernel has no overlay.
    pub fn with(files: &[(&str, &Path)]) -> Result<Image, Error> {
        // SAFETY: a plain number.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return Err(Error::last_os_error());
        }
        mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE, "")?;
        // On the repository's disk, because `/tmp` may be in memory.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let path = folder.path().to_str().expect("a plain path");
        mount(Some(path), folder.path(), None, libc::MS_BIND, "")?;
        let image = Image { memory: folder.path().join("memory"), folder: folder.keep() };
        let added = image.added();
        fs::create_dir(&added)?;
        for (name, file) in files {
            // A file that the linker wrote is in the page cache in small pieces, each of which slows down
            // every start. A file that was unpacked from an image is not.
            fs::copy(file, added.join(name))?;
        }
        fs::create_dir(&image.memory)?;
        mount(Some("tmpfs"), &image.memory, Some("tmpfs"), 0, "")?;
        Ok(image)
    }

    fn added(&self) -> PathBuf {
        self.folder.join("added")
    }

    /// Makes a root with a layer in memory.
    pub fn on_tmpfs(&self) -> Result<Root, Error> {
        self.layered(&self.memory.join("layer"), [Path::new("/sys"), Path::new("/dev")])
    }

    /// Makes a root with a layer on the disk.
    pub fn on_disk(&self, name: &str) -> Result<Root, Error> {
        self.layered(&self.folder.join(name), [Path::new("/sys"), Path::new("/dev")])
    }

    /// Makes a root with a layer in memory, and with the devices of these facts instead of this machine's. Each has a
    /// different name.
    pub fn on_host(&self, name: &str, facts: &Facts) -> Result<Root, Error> {
        let place = self.memory.join("hosts").join(name);
        let host = Host::make(facts, &place)?;
        self.layered(&place.join("layer"), [&host.sys, &host.dev])
    }

    /// Makes a root. `devices` are the directories to mount at /sys and /dev.
    fn layered(&self, place: &Path, devices: [&Path; 2]) -> Result<Root, Error> {
        let [upper, work, path] = ["upper", "work", "root"].map(|name| place.join(name));
        for folder in [&upper, &work, &path] {
            fs::create_dir_all(folder)?;
        }
        let options = format!("lowerdir=/,upperdir={},workdir={}", upper.display(), work.display());
        mount(Some("overlay"), &path, Some("overlay"), 0, &options)?;
        let added = self.added();
        fs::create_dir(path.join(&ADDED[1..]))?;
        let [sys, dev] = devices;
        let folders = [("/proc", Path::new("/proc")), ("/sys", sys), ("/dev", dev), (ADDED, &added)];
        for (target, source) in folders {
            let source = source.to_str().expect("a plain path");
            mount(Some(source), &path.join(&target[1..]), None, libc::MS_BIND | libc::MS_REC, "")?;
        }
        let c_path = c_string(path.as_os_str().as_bytes());
        Ok(Root { path, c_path })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let folder = c_string(self.folder.as_os_str().as_bytes());
        // SAFETY: a C string.
        let is_detached = unsafe { libc::umount2(folder.as_ptr(), libc::MNT_DETACH) } == 0;
        // If it is still attached, the machine's own devices are mounted there, and must not be removed.
        if is_detached {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

impl Root {
    /// Returns the path for chroot(2).
    pub fn path(&self) -> &CString {
        &self.c_path
    }

    /// Returns the path outside of a path in this root.
    pub fn inside(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// Removes what starts have written, as if no container had started with this layer.
    pub fn forget_starts(&self) {
        let state = fs::remove_dir_all(self.path.join(STATE));
        let nccl_conf = fs::remove_file(self.path.join(NCCL_CONF));
        for removed in [state, nccl_conf] {
            let error = removed.err().filter(|error| error.kind() != ErrorKind::NotFound);
            assert!(error.is_none(), "{error:?}");
        }
    }
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("no NUL")
}

/// Calls mount(2).
fn mount(
    source: Option<&str>,
    target: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    options: &str,
) -> Result<(), Error> {
    let [source, kind] = [source, kind].map(|text| c_string(text.unwrap_or("none").as_bytes()));
    let (target, options) = (c_string(target.as_os_str().as_bytes()), c_string(options.as_bytes()));
    // SAFETY: all of these are C strings; the kernel copies what it needs.
    let done = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}
