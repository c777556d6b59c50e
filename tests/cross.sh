#!/bin/sh
# Runs a command with what cargo needs to build for an architecture, this machine's or
# another one that `setup.sh build ARCHITECTURE` has prepared:
#
#   tests/cross.sh aarch64 cargo test --lib
set -eu

architecture=$1
shift
export CARGO_BUILD_TARGET="$architecture-unknown-linux-gnu"
[ "$architecture" != "$(uname -m)" ] || exec "$@"

root=$(cd "$(dirname "$0")/.." && pwd -P)/target/sysroot/$architecture
underscores=$(echo "$CARGO_BUILD_TARGET" | tr - _)
capitals=$(echo "$underscores" | tr '[:lower:]' '[:upper:]')
libraries=$root/usr/lib/$architecture-linux-gnu
# A Rust of the distribution does not have the standard library where it looks for one.
toolchain=$root$(rustc --print sysroot)
[ ! -d "$toolchain/lib/rustlib/$CARGO_BUILD_TARGET" ] ||
    export "CARGO_TARGET_${capitals}_RUSTFLAGS=--sysroot=$toolchain"
# The variables that cargo, pkg-config and bindgen have for one target: what is built to run on
# this machine does not see them.
exec env "CARGO_TARGET_${capitals}_LINKER=$architecture-linux-gnu-gcc" \
    "CARGO_TARGET_${capitals}_RUNNER=qemu-$architecture-static" \
    "PKG_CONFIG_SYSROOT_DIR_$underscores=$root" \
    "PKG_CONFIG_LIBDIR_$underscores=$libraries/pkgconfig" \
    "BINDGEN_EXTRA_CLANG_ARGS_$underscores=--sysroot=$root ${BINDGEN_EXTRA_CLANG_ARGS:-}" \
    "$@"
