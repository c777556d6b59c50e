//! How NCCL handles an HCA with a Data Direct function (`src/transport/net_ib.cc`, later `net_ib/init.cc`:
//! `ncclIbInitDevices`).
//!
//! NCCL names the path through the function `mlx5_0_dma`. It is not a separate device: NCCL makes its
//! connections with the HCA's context and port, so its GIDs are the HCA's. Two things differ: its place on
//! the PCI bus, and with it the distance to the GPUs; and NCCL registers memory with `mlx5dv_reg_dmabuf_mr`,
//! which needs DMA-BUF and a libmlx5 of rdma-core 54 or later (`MLX5_1.25`).

use super::number::integer;
use super::version::{HAS_DATA_DIRECT, Version};

pub const VARIABLE: &str = "NCCL_IB_DATA_DIRECT";

/// From this release on, NCCL offers the path through the function instead of the HCA's own; before, it
/// offered both.
const HIDES_OWN_WAY: Version = Version::new(2, 27, 6);
/// From this release on, NCCL treats a number above 2 as 1; before, as 0.
const TAKES_ANY_NUMBER: Version = Version::new(2, 28, 0);

/// Which paths to the GPUs a release offers for an HCA with a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuPaths {
    /// Only the HCA's own, as if there were no function.
    Own,
    /// Only the path through the function: `mlx5_0_dma`.
    Function,
    /// Both, as two devices: `mlx5_0` and `mlx5_0_dma`.
    Both,
}

pub fn ways<'a>(get: impl Fn(&str) -> Option<&'a str>, version: Version) -> GpuPaths {
    if version < HAS_DATA_DIRECT {
        return GpuPaths::Own;
    }
    match get(VARIABLE).and_then(|value| integer(value, version)).unwrap_or(1) {
        0 => GpuPaths::Own,
        _ if version < HIDES_OWN_WAY => GpuPaths::Both,
        1 => GpuPaths::Function,
        2 => GpuPaths::Both,
        // 2.27 compares the number with 1 and 2, later releases with 0.
        3.. if version >= TAKES_ANY_NUMBER => GpuPaths::Function,
        _ => GpuPaths::Own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_alone_is_used_unless_the_variable_says_otherwise() {
        let with = |value: Option<&str>, version| {
            let value = value.map(str::to_owned);
            ways(|name| value.as_deref().filter(|_| name == VARIABLE), version)
        };
        let [old, first, next, new] =
            [(26, 6), (27, 3), (27, 7), (28, 3)].map(|(minor, patch)| Version::new(2, minor, patch));
        use GpuPaths::{Both, Function, Own};
        for (value, wanted) in [
            (None, [Own, Both, Function, Function]),
            (Some("0"), [Own, Own, Own, Own]),
            (Some("1"), [Own, Both, Function, Function]),
            (Some("2"), [Own, Both, Both, Both]),
            (Some("3"), [Own, Both, Own, Function]),
            (Some("-1"), [Own, Both, Own, Own]),
            (Some(""), [Own, Both, Function, Function]),
        ] {
            assert_eq!([old, first, next, new].map(|version| with(value, version)), wanted, "{value:?}");
        }
    }
}
