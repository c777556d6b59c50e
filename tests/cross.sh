#!/bin/sh
# Runs a command with the settings that cargo needs to build for an architecture: this machine's, or another
# one that `setup.sh build ARCHITECTURE` has prepared:
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
# A Rust from the distribution does not find this standard library by itself.
toolchain=$root$(rustc --print sysroot)
[ ! -d "$toolchain/lib/rustlib/$CARGO_BUILD_TARGET" ] ||
    export "CARGO_TARGET_${capitals}_RUSTFLAGS=--sysroot=$toolchain"
# These are the variables of cargo, pkg-config, and bindgen for one target. Build scripts and other programs
# that run on this machine are not affected.
# In a child of a process with threads, QEMU 7.2 can wait for ever for a lock of GLib's slices, which another thread had at the
# fork (qemu-project/qemu issue 285, mended in 8.1); the lock of malloc is free there.
exec env "CARGO_TARGET_${capitals}_LINKER=$architecture-linux-gnu-gcc" \
    "CARGO_TARGET_${capitals}_RUNNER=env G_SLICE=always-malloc qemu-$architecture-static" \
    "PKG_CONFIG_SYSROOT_DIR_$underscores=$root" \
    "PKG_CONFIG_LIBDIR_$underscores=$libraries/pkgconfig" \
    "BINDGEN_EXTRA_CLANG_ARGS_$underscores=--sysroot=$root ${BINDGEN_EXTRA_CLANG_ARGS:-}" \
    "$@"
