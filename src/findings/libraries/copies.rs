//! Libraries that the image contains in several releases, and packages whose libraries are missing. For NCCL,
//! see `findings::image`.

use std::path::Path;

use crate::finding::{Finding, Id};
use crate::image::Image;
use crate::image::library::{Library, Way};
use crate::image::packages::Package;

/// Packages that install the same directory, whatever CUDA version they are for: the beginning of their
/// names, and the library. All other packages are the same only if their whole names are equal.
const FAMILIES: [(&str, &str); 3] =
    [("nvidia-nvshmem", "NVSHMEM"), ("libucx", "UCX"), ("mooncake-transfer-engine", "Mooncake")];

pub(crate) fn findings(image: &Image) -> Vec<Finding> {
    let mut findings: Vec<Finding> = broken(image).collect();
    let mut seen: Vec<&str> = Vec::new();
    for package in &image.packages {
        let what = family(package);
        if !seen.contains(&what) {
            seen.push(what);
            let same: Vec<&Package> = image.packages.iter().filter(|other| family(other) == what).collect();
            findings.extend(packages(title(what), &same));
        }
    }
    // NIXL's repaired wheels contain a UCX with file names that no other library uses.
    let is_shared = |library: &&Library| {
        library.path.file_name().and_then(|name| name.to_str()).is_some_and(|name| !name.contains('-'))
    };
    let (rccl, nvshmem) = (image.rccl.iter().collect::<Vec<_>>(), image.nvshmem.iter().collect::<Vec<_>>());
    let ucx: Vec<&Library> = image.ucx.iter().filter(is_shared).collect();
    let by_loader = |found: &[&Library], name| {
        let taken = found.iter().find(|library| library.loads_as(name));
        match taken {
            Some(taken) => format!("the dynamic loader takes {}", with_path(taken)),
            None => {
                "the dynamic loader finds none of them, so each program takes the one that it was built with"
                    .to_owned()
            }
        }
    };
    let of_rccl = match image.rccl_of_the_job() {
        Some(taken) => format!("the job seems to load {}", with_path(taken)),
        None => "rdma-init cannot tell which one the job loads".to_owned(),
    };
    let of_ucx = by_loader(&ucx, "libucp.so.0");
    let of_nvshmem = by_loader(&nvshmem, "libnvshmem_host.so.3");
    findings.extend(libraries("RCCL", &rccl, &of_rccl, "cannot form one job"));
    findings.extend(libraries("UCX", &without_wheels(ucx), &of_ucx, "may read other variables"));
    findings.extend(libraries("NVSHMEM", &without_wheels(nvshmem), &of_nvshmem, "may be incompatible, as may a program with the device library of one and the host library of another"));
    findings
}

fn family(package: &Package) -> &str {
    let of = |(start, _): &(&'static str, &str)| package.name.starts_with(start).then_some(*start);
    FAMILIES.iter().find_map(of).unwrap_or(&package.name)
}

fn title(family: &str) -> &str {
    match family {
        "torch" => "PyTorch",
        "vllm" => "vLLM",
        "ray" => "Ray",
        "sglang" => "SGLang",
        "uccl" => "UCCL",
        "deep-ep" => "DeepEP",
        name => FAMILIES.iter().find(|(start, _)| *start == name).map_or(name, |(_, title)| title),
    }
}

/// Returns the files; an empty list if all of them come from wheels, which count as packages.
fn without_wheels(found: Vec<&Library>) -> Vec<&Library> {
    match found.iter().all(|library| library.is_reached(Way::SitePackages)) {
        true => Vec::new(),
        false => found,
    }
}

/// Reports several packages of one library. Two packages in one directory have overwritten each other. If
/// they are in two directories, a Python that searches both uses the first one.
fn packages(title: &str, same: &[&Package]) -> Option<Finding> {
    let (first, rest) = same.split_first()?;
    let differs = |other: &&&Package| other.version != first.version || other.path == first.path;
    let other = rest.iter().find(differs)?;
    let list: Vec<String> = same.iter().map(|package| shown(package)).collect();
    let message = format!("The image has several packages of {title}: {}", list.join(", "));
    if let Some(together) = in_one_folder(same) {
        let whole: Vec<&&Package> = together.iter().filter(|package| package.is_whole()).collect();
        let taken = match whole.as_slice() {
            [alone] => format!("the files there belong to {} {}", alone.name, alone.version),
            _ => "only the files there show which package they belong to".to_owned(),
        };
        let message =
            format!("{message}; those in {} overwrote each other, and {taken}.", first_path(&together));
        let mut names: Vec<&str> = together.iter().map(|package| package.name.as_str()).collect();
        names.dedup();
        let fix = format!(
            "Run `pip uninstall {}` until none of them is left, then install one of them.",
            names.join(" ")
        );
        return Some(Finding::warning(Id::LibraryVersionsDiffer, message).with_fix(fix));
    }
    let fix = "Keep one of them, or start all processes of the job with one Python.".to_owned();
    Some(
        match (python(&first.path), python(&other.path)) {
            (Some(one), Some(another)) if one != another => Finding::info(
                Id::LibraryVersionsDiffer,
                format!("{message}; each Python takes its own, and rdma-init decides for {}.", first.version),
            ),
            _ => Finding::warning(
                Id::LibraryVersionsDiffer,
                format!(
                    "{message}; a Python that searches both directories takes {}, and rdma-init decides for it.",
                    first.version
                ),
            ),
        }
        .with_fix(fix),
    )
}

/// Returns the packages in the first directory that contains several.
fn in_one_folder<'p>(same: &[&'p Package]) -> Option<Vec<&'p Package>> {
    same.iter().find_map(|one| {
        let together: Vec<&Package> = same.iter().copied().filter(|other| other.path == one.path).collect();
        (together.len() > 1).then_some(together)
    })
}

fn first_path(packages: &[&Package]) -> String {
    packages.first().map(|package| package.path.display().to_string()).unwrap_or_default()
}

/// Returns the Python version in the path of a package directory, such as `python3.12`; `None` for Debian's
/// directory, which all of Debian's Python 3 versions use.
fn python(site: &Path) -> Option<&str> {
    let mut parts = site.iter().filter_map(|part| part.to_str());
    parts.find(|part| part.starts_with("python3."))
}

/// Reports files of one library in different releases. `end_so` says how processes that load different ones
/// fail.
fn libraries(title: &str, found: &[&Library], taken: &str, end_so: &str) -> Option<Finding> {
    let mut versions: Vec<&str> = found.iter().filter_map(|library| library.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() < 2 {
        return None;
    }
    // Some wheels contain copies in place of links.
    let mut copies: Vec<&Library> = Vec::new();
    for library in found {
        let is_same = |other: &&Library| {
            other.path.parent() == library.path.parent() && other.version == library.version
        };
        if !copies.iter().any(is_same) {
            copies.push(library);
        }
    }
    let list: Vec<String> = copies.iter().map(|library| with_path(library)).collect();
    let message = format!("The image has several releases of {title}: {}; {taken}.", list.join(", "));
    let fix = format!(
        "Keep one of them: processes that load different releases {end_so}, and LD_LIBRARY_PATH decides which one a process loads."
    );
    Some(Finding::warning(Id::LibraryVersionsDiffer, message).with_fix(fix))
}

/// Returns the version and the path: `3.4.5 in /opt/nvshmem/lib/libnvshmem_host.so.3`.
pub(crate) fn with_path(library: &Library) -> String {
    format!("{} in {}", library.version.as_deref().unwrap_or("of unknown version"), library.path.display())
}

/// Reports packages that pip has recorded as installed, but whose libraries are missing. If another package
/// was installed over one of them, the finding about both has the fix.
fn broken(image: &Image) -> impl Iterator<Item = Finding> {
    image.packages.iter().filter(|package| !package.missing.is_empty()).map(|package| {
        let missing: Vec<String> =
            package.missing.iter().take(3).map(|file| file.display().to_string()).collect();
        let more = match package.missing.len() - missing.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let Package { name, version, .. } = package;
        let message = format!(
            "{} is recorded as installed, but libraries are missing: {}{more}. A program that needs them fails, or loads others.",
            shown(package),
            missing.join(", ")
        );
        let finding = Finding::warning(Id::LibraryBroken, message);
        let of_folder = image.packages.iter().filter(|other| {
            other.path == package.path && family(other) == family(package)
        });
        match of_folder.count() {
            1 => finding.with_fix(format!("pip install --force-reinstall --no-deps {name}=={version}")),
            _ => finding,
        }
    })
}

fn shown(package: &Package) -> String {
    format!("{} {} in {}", package.name, package.version, package.path.display())
}
