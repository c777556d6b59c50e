//! The UCX releases in an image. Each program uses its own: NIXL's wheel contains one (1.23 in NIXL 1.5.1's),
//! whose file names do not show the release, and MPI uses another.
//!
//! NIXL's wheels have UCX 1.20 since NIXL 0.8, and 1.21 or later since 1.0.1 (`UCX_REF` in
//! `contrib/Dockerfile.manylinux` of ai-dynamo/nixl, 0.5 to 1.4).

use super::NIXL;
use crate::image::packages::Package;
use crate::libraries::LibraryContext;

/// Major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

/// The newest release that this model covers.
pub(super) const NEWEST: Release = Release(1, 22);

/// Accepts a leading `^` in `UCX_TLS` (`UCS_CONFIG_TYPE_ALLOW_LIST` in `src/ucp/core/ucp_context.c`).
pub(super) const EXCLUDES_TRANSPORTS: Release = Release(1, 11);
/// Skips a port if its GID entry at the set index, or at index 0 if none is set, is empty
/// (`uct_ib_device_port_check` in `src/uct/ib/base/ib_device.c`).
pub(super) const PASSES_OVER_EMPTY_SLOTS: Release = Release(1, 11);
/// Reads `UCX_IB_ROCE_LOCAL_SUBNET` (`src/uct/ib/base/ib_iface.c`).
pub(super) const HAS_LOCAL_SUBNET: Release = Release(1, 11);
/// Lets RC keep the datagrams that it connects with despite `^ud` in `UCX_TLS`
/// (`ucp_is_resource_in_transports_list` in `src/ucp/core/ucp_context.c`).
pub(super) const KEEPS_DATAGRAMS: Release = Release(1, 15);
/// Reads `UCX_IB_ROCE_SUBNETS` (`src/uct/ib/base/ib_iface.c`).
pub(super) const HAS_SUBNETS: Release = Release(1, 18);
/// Lets RoCE v2 reach only addresses that the routing table has a route to, including its own, unless
/// `UCX_IB_ROCE_REACHABILITY_MODE` turns that off (`uct_ib_iface_roce_is_routable` in
/// `src/uct/ib/base/ib_iface.c`).
pub(super) const ASKS_ROUTES: Release = Release(1, 19);
/// Has `rc_gda` ([`super::gda`]), which the alias `ib` of `UCX_TLS` covers only since 1.21
/// (`ucp_tl_aliases` in `src/ucp/core/ucp_context.c`).
pub(super) const HAS_GDA: Release = Release(1, 20);
/// Accepts a leading `^` in `UCX_NET_DEVICES` and an HCA's name without a port; prefers other GIDs to
/// link-local IPv6 ones (`src/ucp/core/ucp_context.c`, `src/uct/ib/base/ib_device.c`).
pub(super) const EXCLUDES_DEVICES: Release = Release(1, 21);
/// Accepts ranges in `UCX_NET_DEVICES`: `mlx5_[0-3]:1` (`src/ucs/config/parser.c`).
pub(super) const HAS_RANGES: Release = Release(1, 22);

/// A UCX in the image.
struct Copy {
    /// `None` if the file does not show it.
    release: Option<Release>,
    /// Whether it has transports over InfiniBand and RoCE, or may have.
    has_verbs: bool,
    /// Whether it has the transport `rc_gda`.
    has_gda: bool,
}

/// Returns each UCX in the image: those whose files were found, and the wheels whose files are unknown.
fn copies(subject: &LibraryContext) -> Vec<Copy> {
    let Some(image) = subject.facts.image.as_ref() else { return Vec::new() };
    let of_files = image.ucx.iter().map(|library| Copy {
        release: library.version.as_deref().and_then(parse),
        has_verbs: library.verbs != Some(false),
        has_gda: library.gda,
    });
    let is_found = |package: &Package, folder: &str| {
        let folder = package.path.join(folder);
        image.ucx.iter().any(|file| file.path.starts_with(&folder))
    };
    let wheels = image.packages("libucx-");
    let of_wheels = wheels.filter(|package| !is_found(package, "libucx")).map(|package| Copy {
        release: parse(&package.version),
        has_verbs: true,
        has_gda: false,
    });
    let of_nixl = image.packages(NIXL).map(|package| {
        let release = nixl(&package.version);
        // The module shows in the files if they were found.
        let is_found = is_found(package, &format!("{}.libs", package.name.replace('-', "_")));
        let has_gda = !is_found && release.is_some_and(|release| release >= HAS_GDA);
        Copy { release, has_verbs: true, has_gda }
    });
    of_files.chain(of_wheels).chain(of_nixl).collect()
}

/// Returns the UCX in NIXL's wheel with this version; the newest known release for all later ones.
fn nixl(version: &str) -> Option<Release> {
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0));
    Some(match version {
        (0, 0..8, _) => Release(1, 19),
        (0, _, _) | (1, 0, 0) => Release(1, 20),
        _ => NEWEST,
    })
}

/// Returns the releases with the transport `rc_gda`.
pub(super) fn with_gda(subject: &LibraryContext) -> Vec<Release> {
    let copies = copies(subject).into_iter().filter(|copy| copy.has_gda);
    copies.map(|copy| copy.release.unwrap_or(NEWEST)).collect()
}

/// Returns whether any UCX here has transports over InfiniBand and RoCE: the module for them is beside it
/// (`libuct_ib.so`, which `src/ucs/sys/module.c` looks for in the directory `ucx` beside the library).
pub(super) fn has_verbs(subject: &LibraryContext) -> bool {
    let copies = copies(subject);
    copies.is_empty() || copies.iter().any(|copy| copy.has_verbs)
}

/// Returns whether the release of each UCX here is known.
pub(super) fn are_known(subject: &LibraryContext) -> bool {
    let copies = copies(subject);
    !copies.is_empty() && copies.iter().all(|copy| copy.release.is_some())
}

/// Returns all releases in the image, the oldest first; the newest known release for NIXL's, and if the files
/// do not show any. A UCX without transports over InfiniBand and RoCE counts only if no UCX has them.
pub(super) fn all(subject: &LibraryContext) -> Vec<Release> {
    let has_verbs = has_verbs(subject);
    let copies = copies(subject).into_iter().filter(|copy| copy.has_verbs == has_verbs);
    let mut all: Vec<Release> = copies.filter_map(|copy| copy.release).collect();
    if all.is_empty() {
        all.push(NEWEST);
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn parse(text: &str) -> Option<Release> {
    let mut numbers = text.split('.').map_while(|part| part.parse().ok());
    Some(Release(numbers.next()?, numbers.next()?))
}
