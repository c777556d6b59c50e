#!/bin/sh
# Builds the fuzzers of these targets on the stable toolchain, into target/fuzz/programs: build.sh TARGET... The library
# is built once. cargo-fuzz would need a nightly toolchain, for a sanitizer of memory that Rust without `unsafe` does not
# need.
set -eu
cd "$(dirname "$0")"

flags="--cfg fuzzing -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags="$flags -Cllvm-args=-sanitizer-coverage-$option"
done
# No target uses verbs, so the static libraries of rdma-core stay out of the program. The counters of a function go with
# the function, if the program does not contain it.
flags="$flags -Clink-arg=-Wl,--unresolved-symbols=ignore-all -Clink-arg=-Wl,-z,start-stop-gc"
export RUSTFLAGS="$flags" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-../target}/fuzz"
mkdir -p "$CARGO_TARGET_DIR/programs"
for target; do
    FUZZ_TARGET=$target cargo build --release --locked
    cp "$CARGO_TARGET_DIR/$CARGO_BUILD_TARGET/release/rdma-init-fuzz" "$CARGO_TARGET_DIR/programs/$target"
done
