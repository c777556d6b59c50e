#!/bin/sh
# Builds the fuzzer on the stable toolchain, and prints its path. cargo-fuzz would need a nightly one, for a sanitizer
# of memory that Rust without `unsafe` does not need.
set -eu
cd "$(dirname "$0")"

flags="--cfg fuzzing -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags="$flags -Cllvm-args=-sanitizer-coverage-$option"
done
# No target uses verbs, so the static libraries of rdma-core stay out of the program.
flags="$flags -Clink-arg=-Wl,--unresolved-symbols=ignore-all"
export RUSTFLAGS="$flags" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-../target}/fuzz
cargo build --release --locked >&2
echo "$CARGO_TARGET_DIR/$CARGO_BUILD_TARGET/release/rdma-init-fuzz"
