use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Returns a directory that only this user may change; the same applies to the directories on its path.
fn place() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn only_a_new_file_is_written_under_its_own_name() {
    let place = place();
    let folder = Folder::make(&place.path().join("a")).unwrap();
    folder.write_unread("facts.json", b"first", 0o600).unwrap();
    assert_eq!(folder.write_unread("facts.json", b"second", 0o644), Err(Errno::EEXIST));
    assert_eq!(folder.read("facts.json").unwrap(), b"first");
    let path = place.path().join("a/facts.json");
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    symlink("elsewhere", place.path().join("a/link")).unwrap();
    assert_eq!(folder.write_unread("link", b"", 0o644), Err(Errno::EEXIST));
}

#[test]
fn state_files_are_world_readable_and_replaceable() {
    let place = place();
    let path = place.path().join("a/b");
    for (text, is_new) in [("first", true), ("second, longer", false)] {
        let folder = Folder::make(&path).unwrap();
        assert_eq!(folder.is_new(), is_new);
        folder.write("x.json", text.as_bytes(), 0o644).unwrap();
        let folder = Folder::open(&path, &[Uid::effective()]).unwrap();
        assert_eq!(folder.read("x.json").unwrap(), text.as_bytes());
    }
    let names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["x.json"]);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(path.join("x.json")).unwrap().mode() & 0o7777, 0o644);
    let new = place.path().join("new");
    Folder::make(&new).unwrap().write("empty", b"", 0o622).unwrap();
    assert_eq!(fs::metadata(new.join("empty")).unwrap().mode() & 0o7777, 0o622);
}

#[test]
fn what_a_killed_start_has_left_goes_with_the_next() {
    let place = place();
    let path = place.path().join("state");
    Folder::make(&path).unwrap();
    let under_way = beside("plan.json");
    let names =
        [".plan.json.2.1700000000000000000", ".other.2.1700000000000000000", ".plan.json.x", "plan.json"];
    for name in names.into_iter().chain([under_way.as_str()]) {
        fs::write(path.join(name), "half").unwrap();
    }
    Folder::make(&path).unwrap();
    let is_there = |name: &str| path.join(name).exists();
    assert_eq!(names.map(is_there), [false, true, true, true]);
    assert!(is_there(&under_way));
}

#[test]
fn no_link_is_followed() {
    let place = place();
    let real = place.path().join("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, place.path().join("link")).unwrap();
    let wrong = |name: &str| Folder::make(&place.path().join(name)).unwrap_err().to_string();
    assert!(wrong("link").contains("symbolic link"));
    assert!(wrong("link/below").contains("symbolic link"));
    let folder = Folder::make(&real).unwrap();
    fs::write(place.path().join("secret"), "old").unwrap();
    symlink(place.path().join("secret"), real.join("env.sh")).unwrap();
    assert_eq!(folder.read("env.sh"), Err(Errno::ELOOP));
    folder.write("env.sh", b"new", 0o644).unwrap();
    assert_eq!(fs::read_to_string(place.path().join("secret")).unwrap(), "old");
    assert_eq!(folder.read("env.sh").unwrap(), b"new");
}

#[test]
fn what_others_may_change_is_refused() {
    let place = place();
    let below = place.path().join("open/state");
    fs::create_dir_all(&below).unwrap();
    mode(below.parent().unwrap(), 0o777);
    assert_eq!(Folder::make(&below).unwrap_err(), Refused::Open);
    mode(below.parent().unwrap(), 0o1777);
    assert!(Folder::make(&below).is_ok());
    // The directory's own mode is corrected, but only for writing, and only if it contains nothing else.
    mode(&below, 0o777);
    assert_eq!(Folder::open(&below, &[Uid::effective()]).unwrap_err(), Refused::Open);
    assert!(Folder::make(&below).is_ok());
    let now = || fs::metadata(&below).unwrap().mode() & 0o7777;
    assert_eq!(now(), 0o755);
    fs::write(below.join("other"), "").unwrap();
    mode(&below, 0o1777);
    assert_eq!((Folder::make(&below).unwrap_err(), now()), (Refused::Open, 0o1777));
    mode(&below, 0o700);
    assert!(Folder::make(&below).is_ok());
    assert_eq!(now(), 0o700);
    fs::remove_file(below.join("other")).unwrap();
    if Uid::effective().is_root() {
        chown(&below, Some(12345), None).unwrap();
        assert_eq!(Folder::make(&below).unwrap_err(), Refused::Foreign(12345));
        assert!(Folder::open(&below, &[Uid::from_raw(12345)]).is_ok());
    }
}

#[test]
fn what_is_no_file_of_the_owner_is_not_read() {
    let place = place();
    let path = place.path().join("state");
    let folder = Folder::make(&path).unwrap();
    nix::unistd::mkfifo(&path.join("fifo"), Mode::S_IRWXU).unwrap();
    assert_eq!(folder.read("fifo"), Err(Errno::EINVAL));
    assert_eq!(folder.read("absent"), Err(Errno::ENOENT));
    folder.write("open", b"1", 0o644).unwrap();
    mode(&path.join("open"), 0o666);
    assert_eq!(folder.read("open"), Err(Errno::EINVAL));
    for wrong in ["relative/state", "/tmp/../tmp/x"] {
        assert_eq!(Folder::make(Path::new(wrong)).unwrap_err(), Refused::Errno(Errno::EINVAL));
    }
}
