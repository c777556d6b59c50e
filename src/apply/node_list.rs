//! Writes the names of the variables that each node must keep for itself into vLLM's list
//! ([`crate::facts::node_list`]).

use std::fs;
use std::path::Path;

use nix::unistd::Uid;

use super::amend::{InPlace, LONGEST, amend};
use crate::block::list;
use crate::facts::reader::{Links, read_regular};
use crate::state::folder::Folder;
use crate::state::mount;
use crate::sys::user;

/// Puts the names after the user's own, replacing those of an earlier start. Creates the file and its
/// directory if there are names. Without `InPlace::Yes`, changes only files on the container's own mount:
/// many nodes may share a home directory.
///
/// # Errors
/// Returns a sentence that says why the names cannot be written.
pub(crate) fn write(root: &Path, file: &str, names: &[&str], in_place: InPlace) -> Result<(), String> {
    if !file.starts_with('/') {
        return Err("its directory is relative to the working directory, so each process looks for a different file (start VLLM_CONFIG_ROOT with /)".into());
    }
    let path = root.join(file.trim_start_matches('/'));
    // A user may have put the names into a list that rdma-init must not write.
    if names.is_empty() && !path.exists() || has_all(&path, names) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(root);
    // Below this directory, all directories on the path are missing.
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(root);
    if in_place == InPlace::UnlessMounted && mount::of_path(there) != mount::of_path(root) {
        return Err(format!("{} is a mount, which other containers may share", there.display()));
    }
    if there != folder {
        let users = [Uid::from_raw(0), user::effective()];
        Folder::open(there, &users).map_err(|refused| format!("{}: {refused}", there.display()))?;
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let mut is_list = true;
    let change = |old: &str| {
        list::with(old, names).unwrap_or_else(|list::NoList| {
            is_list = false;
            old.to_owned()
        })
    };
    amend(&path, 0o644, in_place, change).map_err(|kept| kept.to_string())?;
    if is_list { Ok(()) } else { Err("it is not a JSON list of names".to_owned()) }
}

/// Returns whether the list needs no change, regardless of where it is.
fn has_all(path: &Path, names: &[&str]) -> bool {
    let text =
        read_regular(path, LONGEST, Links::Followed).ok().and_then(|text| String::from_utf8(text).ok());
    text.is_some_and(|text| list::with(&text, names).is_ok_and(|with| with == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_with_its_folder_and_added_to() {
        let root = tempfile::tempdir().unwrap();
        let file = "/home/job/.config/vllm/list.json";
        let path = root.path().join("home/job/.config/vllm/list.json");
        let write = |names: &[&str]| write(root.path(), file, names, InPlace::Yes);
        write(&[]).unwrap();
        assert!(!root.path().join("home").exists());
        write(&["NCCL_IB_HCA"]).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("\"NCCL_IB_HCA\""));
        fs::write(&path, "[\"MINE\"]").unwrap();
        write(&["NCCL_IB_HCA"]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"MINE\"") && text.contains("\"NCCL_IB_HCA\""), "{text}");
        write(&[]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  \"MINE\"\n]\n");
        // A file that is not a list is not repaired.
        fs::write(&path, "[\"MINE\",]").unwrap();
        assert_eq!(write(&["NCCL_IB_HCA"]), Err("it is not a JSON list of names".to_owned()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\"MINE\",]");
    }

    #[test]
    fn a_list_that_cannot_be_written_is_right_with_the_names_in_it() {
        let root = tempfile::tempdir().unwrap();
        let other = root.path().join("data");
        fs::write(&other, "[\"NCCL_NET\", \"NCCL_IB_HCA\"]").unwrap();
        // The link imitates a mounted ConfigMap.
        std::os::unix::fs::symlink(&other, root.path().join("list.json")).unwrap();
        let write = |file: &str, names: &[&str]| write(root.path(), file, names, InPlace::Yes);
        assert_eq!(write("/list.json", &["NCCL_IB_HCA"]), Ok(()));
        assert!(write("/list.json", &["NCCL_IB_TC"]).unwrap_err().contains("symbolic link"));
        assert!(write("list.json", &["NCCL_IB_HCA"]).unwrap_err().contains("working directory"));
    }

    #[test]
    fn a_folder_of_others_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        if !Uid::effective().is_root() {
            return;
        }
        let home = root.path().join("home");
        fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(1234), None).unwrap();
        let why = write(root.path(), "/home/vllm/list.json", &["A"], InPlace::Yes).unwrap_err();
        assert!(why.contains("another user (uid 1234)"), "{why}");
        assert!(!home.join("vllm").exists());
    }
}
