//! The releases of UCX in an image. Each program takes its own: NIXL's wheel brings one (1.23 in that
//! of NIXL 1.5.1), whose release no file name tells, and MPI another.

use crate::facts::image::Image;
use crate::facts::image::packages::Package;
use crate::libraries::Subject;

/// Major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

/// The newest release that is known here.
pub const NEWEST: Release = Release(1, 22);

/// `UCX_TLS` may begin with `^` (`UCS_CONFIG_TYPE_ALLOW_LIST` in `src/ucp/core/ucp_context.c`).
pub const EXCLUDES_TRANSPORTS: Release = Release(1, 11);
/// A port whose slot of the index, or slot 0 without one, is empty is passed over
/// (`uct_ib_device_port_check` in `src/uct/ib/base/ib_device.c`).
pub const PASSES_OVER_EMPTY_SLOTS: Release = Release(1, 11);
/// `UCX_IB_ROCE_LOCAL_SUBNET` (`src/uct/ib/base/ib_iface.c`).
pub const HAS_LOCAL_SUBNET: Release = Release(1, 11);
/// `^ud` in `UCX_TLS` leaves RC the datagrams that it connects with (`ucp_is_resource_in_transports_list`
/// in `src/ucp/core/ucp_context.c`).
pub const KEEPS_DATAGRAMS: Release = Release(1, 15);
/// `UCX_IB_ROCE_SUBNETS` (`src/uct/ib/base/ib_iface.c`).
pub const HAS_SUBNETS: Release = Release(1, 18);
/// RoCE v2 reaches what the routing table has a route to, itself included, and
/// `UCX_IB_ROCE_REACHABILITY_MODE` turns that off (`uct_ib_iface_roce_is_routable` in
/// `src/uct/ib/base/ib_iface.c`).
pub const ASKS_ROUTES: Release = Release(1, 19);
/// `UCX_NET_DEVICES` may begin with `^`, and an HCA may be named without its port; a link-local GID
/// of IPv6 comes after the others (`src/ucp/core/ucp_context.c`, `src/uct/ib/base/ib_device.c`).
pub const EXCLUDES_DEVICES: Release = Release(1, 21);
/// `UCX_NET_DEVICES` may have ranges: `mlx5_[0-3]:1` (`src/ucs/config/parser.c`).
pub const HAS_RANGES: Release = Release(1, 22);

/// All releases that the image has, the oldest first; the newest that is known for NIXL's, and where
/// the files do not tell.
pub fn all(subject: &Subject) -> Vec<Release> {
    let image = subject.facts.image.as_ref();
    let of_files =
        image.into_iter().flat_map(|image| &image.ucx).filter_map(|library| library.version.as_deref());
    let packages = image.into_iter().flat_map(|image| &image.packages);
    let of_wheels =
        packages.filter(|package| package.name.starts_with("libucx")).map(|package| package.version.as_str());
    let mut all: Vec<Release> = of_files.chain(of_wheels).filter_map(parse).collect();
    if all.is_empty() || image.is_some_and(has_nixl) {
        all.push(NEWEST);
    }
    all.sort_unstable();
    all.dedup();
    all
}

pub fn has_nixl(image: &Image) -> bool {
    image.packages.iter().any(is_nixl)
}

/// NIXL, as packages of Python's call it: `nixl`, `nixl-cu12`.
pub fn is_nixl(package: &Package) -> bool {
    package.name.starts_with("nixl")
}

fn parse(text: &str) -> Option<Release> {
    let mut numbers = text.split('.').map_while(|part| part.parse().ok());
    Some(Release(numbers.next()?, numbers.next()?))
}
