//! The files that node 0 writes after a preflight: the names of the faulty nodes, the HTML page, and the JSON
//! document.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};
use nix::unistd::AccessFlags;

use crate::config::{Config, Excluded};
use crate::json;
use crate::preflight::judge::verdict::Verdict;
use crate::report;
use crate::sys::directory::{Directory, IS_LINK, kind_of};

/// The files that node 0 writes, if the user wants them.
pub(crate) struct Files<'a> {
    /// The file for the names of the faulty nodes, and its format.
    pub excluded: Option<&'a Path>,
    pub format: Excluded,
    /// The page.
    pub html: Option<&'a Path>,
    /// The document.
    pub json: Option<&'a Path>,
}

impl<'a> Files<'a> {
    pub(crate) fn of(config: &'a Config) -> Files<'a> {
        Files {
            excluded: config.preflight_exclude_file.as_deref(),
            format: config.preflight_exclude_format,
            html: config.preflight_html.as_deref(),
            json: config.preflight_json_file.as_deref(),
        }
    }

    /// Returns what is missing from the list of faulty nodes, if the user wants one.
    #[must_use]
    pub(crate) fn gap(&self, verdict: &Verdict) -> Option<String> {
        self.excluded.and_then(|_| verdict.gap())
    }

    /// Empties the list of faulty nodes, which may be from an earlier job: without a verdict of this job, no
    /// scheduler may exclude those nodes. Returns a sentence about each file that cannot be written, as far
    /// as that can be determined without writing.
    #[must_use]
    pub(crate) fn prepare(&self) -> Vec<String> {
        let emptied = self.excluded.map(|path| (path, write(path, |_| Ok(()))));
        let others = [self.html, self.json].into_iter().flatten().map(|path| (path, access(path)));
        let all = emptied.into_iter().chain(others);
        all.filter_map(|(path, result)| Some(unwritten(path, &result.err()?))).collect()
    }

    /// Writes all files. Returns a sentence about each one that cannot be written.
    #[must_use]
    pub(crate) fn write(&self, verdict: &Verdict) -> Vec<String> {
        let file = |path: Option<&Path>, text: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let path = path?;
            let error = write(path, text).err()?;
            Some(unwritten(path, &error))
        };
        let written = [
            file(self.excluded, &|out| report::preflight::write_excluded(out, verdict, self.format)),
            file(self.html, &|out| report::preflight_page::write(out, verdict)),
            file(self.json, &|mut out| json::write_line(&mut out, verdict)),
        ];
        written.into_iter().flatten().collect()
    }
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// What exists at a file's path.
enum There {
    Nothing,
    File,
    /// A device such as `/dev/null`, which is written to but not replaced.
    Device,
}

/// # Errors
/// Fails if it is none of these, or if its type is unknown.
fn there(folder: &Directory, name: &OsStr) -> io::Result<There> {
    let Some(status) = folder.status(name)? else { return Ok(There::Nothing) };
    match kind_of(&status) {
        SFlag::S_IFREG => Ok(There::File),
        SFlag::S_IFCHR => Ok(There::Device),
        SFlag::S_IFLNK => Err(io::Error::other(IS_LINK)),
        SFlag::S_IFDIR => Err(io::Error::other("it is a directory")),
        _ => Err(io::Error::other("it is neither a file nor new")),
    }
}

/// Checks whether a file can be written or created, as far as that can be determined without writing.
///
/// # Errors
/// Fails as [`there`] and access(2) do.
fn access(path: &Path) -> io::Result<()> {
    let (folder, name) = Directory::of_file(path)?;
    match there(&folder, &name)? {
        There::Nothing => folder.access(OsStr::new("."), AccessFlags::W_OK | AccessFlags::X_OK),
        There::File | There::Device => folder.access(&name, AccessFlags::W_OK),
    }
}

/// Writes a file that only node 0 writes; writes it atomically if another file can take its place. Never
/// writes through a symbolic link that another user may have put on the path, and never blocks on a FIFO.
///
/// # Errors
/// Fails as [`there`], open(2), write(2) and rename(2) do.
fn write(path: &Path, write: impl Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let (folder, name) = Directory::of_file(path)?;
    let there = there(&folder, &name)?;
    if !matches!(there, There::Device) {
        match folder.create_beside(&name, Mode::from_bits_truncate(0o666)) {
            Ok((new, file)) => {
                let replaced = fill(file, &write).and_then(|()| folder.rename(&new, &name));
                match replaced {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        folder.remove(&new);
                        // No file can replace one that is a mount.
                        if error.kind() != ErrorKind::ResourceBusy {
                            return Err(error);
                        }
                    }
                }
            }
            // The directory may belong to another user although the file belongs to this one.
            Err(_) if matches!(there, There::File) => {}
            Err(error) => return Err(error),
        }
    }
    let kind = if matches!(there, There::Device) { SFlag::S_IFCHR } else { SFlag::S_IFREG };
    fill(folder.open_file(&name, OFlag::O_WRONLY | OFlag::O_TRUNC, kind)?, &write)
}

fn fill(file: File, write: impl Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn what_cannot_be_written_is_told_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        let told = |name: &str| {
            let html = path(name);
            Files { excluded: None, format: Excluded::Lines, html: Some(&html), json: None }.prepare()
        };
        assert_eq!(told("file"), [""; 0]);
        assert_eq!(told("new"), [""; 0]);
        assert!(!path("new").exists());
        let lost = told("missing/new");
        assert!(lost[0].contains("missing/new: No such file or directory"), "{lost:?}");
        let lost = told("file/new");
        assert!(lost[0].contains("file/new: Not a directory"), "{lost:?}");
        let lost = told("");
        assert!(lost[0].ends_with("it is a directory"), "{lost:?}");
    }

    #[test]
    fn a_list_of_an_earlier_job_is_emptied_and_a_page_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [list, page] = ["list", "page"].map(|name| folder.path().join(name));
        std::fs::write(&list, "gpu-07\n").unwrap();
        std::fs::write(&page, "old").unwrap();
        let files = Files { excluded: Some(&list), format: Excluded::Lines, html: Some(&page), json: None };
        assert_eq!(files.prepare(), [""; 0]);
        assert_eq!(std::fs::read_to_string(&list).unwrap(), "");
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "old");
    }

    #[test]
    fn what_cannot_be_written_as_a_whole_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page");
        std::fs::write(&page, "old").unwrap();
        let full = |out: &mut dyn Write| {
            out.write_all(b"new")?;
            Err(io::Error::from(ErrorKind::StorageFull))
        };
        assert!(write(&page, full).is_err());
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write(Path::new("/dev/null"), |out| out.write_all(b"new")).unwrap();
    }

    #[test]
    fn a_file_is_not_written_through_a_link_and_a_fifo_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let text = |name: &str| write(&path(name), |out| out.write_all(b"bad"));
        std::fs::write(path("other"), "kept, and longer").unwrap();
        symlink(path("other"), path("link")).unwrap();
        mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        assert_eq!(text("link").unwrap_err().to_string(), "it is a symbolic link; name the file itself");
        assert_eq!(std::fs::read_to_string(path("other")).unwrap(), "kept, and longer");
        assert!(text("fifo").is_err());
        text("other").unwrap();
        assert_eq!(std::fs::read_to_string(path("other")).unwrap(), "bad");
    }

    #[test]
    fn a_link_on_the_way_that_another_user_may_have_left_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["shared", "other"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("other/list"), "kept").unwrap();
        symlink(path("other"), path("shared/results")).unwrap();
        std::fs::set_permissions(path("shared"), std::os::unix::fs::PermissionsExt::from_mode(0o1777))
            .unwrap();
        let list = path("shared/results/list");
        let lost =
            Files { excluded: Some(&list), format: Excluded::Lines, html: Some(&list), json: None }.prepare();
        assert_eq!(lost.len(), 2, "{lost:?}");
        for why in lost {
            assert!(why.contains("results on its path is a symbolic link"), "{why}");
        }
        assert_eq!(std::fs::read_to_string(path("other/list")).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(path("other")).unwrap().count(), 1);
    }
}
