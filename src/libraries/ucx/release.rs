//! The releases of UCX in an image. Each program takes its own: NIXL's wheel brings one, and MPI
//! another.

use crate::libraries::Subject;

/// Major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

/// The newest release that is known here.
pub const NEWEST: Release = Release(1, 22);

/// `UCX_TLS` may begin with `^` (`UCS_CONFIG_TYPE_ALLOW_LIST` in `src/ucp/core/ucp_context.c`).
pub const EXCLUDES_TRANSPORTS: Release = Release(1, 11);
/// `UCX_IB_ROCE_SUBNETS` (`src/uct/ib/base/ib_iface.c`).
pub const HAS_SUBNETS: Release = Release(1, 18);
/// `UCX_NET_DEVICES` may begin with `^`, and an HCA may be named without its port; a link-local GID
/// of IPv6 comes after the others (`src/ucp/core/ucp_context.c`, `src/uct/ib/base/ib_device.c`).
pub const EXCLUDES_DEVICES: Release = Release(1, 21);
/// `UCX_NET_DEVICES` may have ranges: `mlx5_[0-3]:1` (`src/ucs/config/parser.c`).
pub const HAS_RANGES: Release = Release(1, 22);

/// All releases that the image has, the oldest first; the newest that is known where the files do
/// not tell.
pub fn all(subject: &Subject) -> Vec<Release> {
    let image = subject.facts.image.as_ref();
    let of_files =
        image.into_iter().flat_map(|image| &image.ucx).filter_map(|library| library.version.as_deref());
    let packages = image.into_iter().flat_map(|image| &image.packages);
    let of_wheels =
        packages.filter(|package| package.name.starts_with("libucx")).map(|package| package.version.as_str());
    let mut all: Vec<Release> = of_files.chain(of_wheels).filter_map(parse).collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() { vec![NEWEST] } else { all }
}

fn parse(text: &str) -> Option<Release> {
    let mut numbers = text.split('.').map_while(|part| part.parse().ok());
    Some(Release(numbers.next()?, numbers.next()?))
}
