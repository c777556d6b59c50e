//! Determines whether NCCL uses GPUDirect RDMA between a GPU and an HCA on the same CPU if C2C links connect
//! the GPU and the CPU (`src/graph/paths.cc`: `ncclTopoCheckGdr`). On the PCI bus, such an HCA is as far away
//! as one across the host bridge, which is too far for GPUDirect RDMA by default.

use super::level;
use super::number::integer;
use super::version::Version;

pub(crate) const VARIABLE: &str = "NCCL_NET_GDR_C2C";
const LEVEL: &str = "NCCL_NET_GDR_LEVEL";

/// The first release that recognizes C2C links and reads the variable.
pub(crate) const SINCE: Version = Version::new(2, 26, 0);
/// The first release that uses C2C links by default.
const BY_DEFAULT: Version = Version::new(2, 27, 0);
/// The first release that compares the level with the distance P2C; earlier ones compare with the shorter
/// C2C.
const COMPARES_P2C: Version = Version::new(2, 29, 0);

/// The GPUs with C2C links to a CPU that also has NICs. (The GB10 of a DGX Spark has no GPUDirect RDMA at
/// all.)
pub(crate) const MODELS: &[&str] = &["GH200", "GB200", "GB300"];

/// Whether a release uses GPUDirect RDMA over C2C links, and what prevents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuDirect {
    Used,
    /// Not by default; the value 1 of [`VARIABLE`] turns it on.
    AskFor,
    /// This variable turns it off.
    Off(&'static str),
    /// The release does not recognize C2C links. A level of `PHB` or `SYS` turns it on.
    TooOld,
}

pub(crate) fn gpudirect<'a>(get: impl Fn(&str) -> Option<&'a str>, version: Version) -> GpuDirect {
    let level = get(LEVEL).and_then(|text| level::parse(text, version));
    let reaches = |distance: &str| {
        let names = level::names(version);
        let place = |name: &str| names.iter().position(|known| *known == name);
        level.is_some_and(|level| place(level) >= place(distance))
    };
    if reaches("PHB") {
        return GpuDirect::Used;
    }
    if version < SINCE {
        return GpuDirect::TooOld;
    }
    let wish = get(VARIABLE).and_then(|value| integer(value, version));
    match wish {
        Some(0) => GpuDirect::Off(VARIABLE),
        None if version < BY_DEFAULT => GpuDirect::AskFor,
        _ => match level {
            None => GpuDirect::Used,
            Some(_) if reaches(if version >= COMPARES_P2C { "P2C" } else { "C2C" }) => GpuDirect::Used,
            Some(_) => GpuDirect::Off(LEVEL),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_has_its_own_way() {
        use GpuDirect::{AskFor, Off, TooOld, Used};
        // The columns are the releases 2.25, 2.26, 2.28 and 2.29.
        for (variables, wanted) in [
            (&[][..], [TooOld, AskFor, Used, Used]),
            (&[(VARIABLE, "1")], [TooOld, Used, Used, Used]),
            (&[(VARIABLE, "0")], [TooOld, Off(VARIABLE), Off(VARIABLE), Off(VARIABLE)]),
            (&[(LEVEL, "PHB")], [Used, Used, Used, Used]),
            (&[(LEVEL, "SYS")], [Used, Used, Used, Used]),
            (&[(LEVEL, "PIX")], [TooOld, AskFor, Used, Off(LEVEL)]),
            (&[(LEVEL, "PXB"), (VARIABLE, "1")], [TooOld, Used, Used, Off(LEVEL)]),
            (&[(LEVEL, "P2C")], [TooOld, AskFor, Used, Used]),
            (&[(LEVEL, "LOC")], [TooOld, AskFor, Off(LEVEL), Off(LEVEL)]),
            (&[(LEVEL, "word")], [TooOld, AskFor, Used, Used]),
        ] {
            let get =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let found = [25, 26, 28, 29].map(|minor| gpudirect(get, Version::new(2, minor, 2)));
            assert_eq!(found, wanted, "{variables:?}");
        }
    }
}
