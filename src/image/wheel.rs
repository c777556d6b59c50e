//! Reads what pip records about a package, beside it (`NAME-VERSION.dist-info`).

use std::path::Path;

use super::tree::Tree;

/// Returns the version of the wheel with this name prefix that installed this file. Users replace files by
/// hand, so the size must match the wheel's own list.
pub(super) fn version(tree: &Tree, site: &Path, name: &str, path: &Path) -> Option<String> {
    let file = tree.open(&tree.real(path)?)?;
    let size = file.metadata().ok()?.len().to_string();
    let entry = path.strip_prefix(site).ok()?.to_str()?;
    noted(&tree.names(site), name).find_map(|(folder, version)| {
        // A line looks like this: `nvidia/nccl/lib/libnccl.so.2,sha256=...,251616632`.
        let record = tree.text(&site.join(folder).join("RECORD"))?;
        let (_, of_wheel) = files(&record).find(|(file, _)| *file == entry)?;
        (of_wheel == size).then(|| version.to_owned())
    })
}

/// Returns the files in a wheel's own list, each with its size. Many lists have carriage returns at the ends
/// of their lines, which the reader replaces with another character.
pub(super) fn files(record: &str) -> impl Iterator<Item = (&str, &str)> {
    record.lines().filter_map(|line| {
        let (file, rest) = line.split_once(',')?;
        let size = rest.rsplit(',').next()?;
        Some((file, size.trim_end_matches(|c: char| !c.is_ascii_digit())))
    })
}

/// Returns the records of packages with this name prefix: the directory name and the version.
pub(super) fn noted<'n>(names: &'n [String], start: &str) -> impl Iterator<Item = (&'n str, &'n str)> {
    names.iter().filter_map(move |folder| {
        let (name, version) = folder.strip_suffix(".dist-info")?.split_once('-')?;
        name.starts_with(start).then_some((folder.as_str(), version))
    })
}
