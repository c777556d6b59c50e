#!/bin/sh
# The suites with the program for arm64, on a machine of another architecture: QEMU runs the
# program, and this machine the tests around it. The unit tests run in QEMU as a whole, and the
# suite of virtual machines boots kernels of arm64 with pages of 4 and of 16 KiB.
#
#     tests/arm64/run.sh [SUITE...]      runs some of lib, golden, cli, init, nccl and vm, or all
#
# tests/arm64/skipped lists the tests that QEMU cannot run, each with its reason.
set -eu

cd "$(dirname "$0")/../.."
here=tests/arm64
program=$PWD/target/aarch64-unknown-linux-gnu/release/rdma-init
[ -e "$program" ] || { echo "there is no $program: make build-all" >&2; exit 1; }

# run SUITE COMMAND...: `cargo test` for one suite, without what its list names.
run() {
    suite=$1
    shift
    echo "--- arm64: $suite"
    there=$("$@" -- --list 2>/dev/null)
    # Many of the tests only wait.
    set -- "$@" -- --test-threads 8 --exact
    # No name has a space.
    # shellcheck disable=SC2013
    for name in $(sed -n "s/^$suite \([^ ]*\) .*/\1/p" "$here/skipped"); do
        echo "$there" | grep -qxF "$name: test" || {
            echo "$here/skipped names $name, and the suite $suite has no such test" >&2
            exit 1
        }
        set -- "$@" --skip "$name"
    done
    "$@"
}

of_this_machine() {
    test=$1
    RDMA_INIT_TEST_BINARY=$2
    export RDMA_INIT_TEST_BINARY
    run "$test" cargo test --release --locked --no-fail-fast --test "$test"
}

[ $# -gt 0 ] || set -- lib golden cli init nccl vm
for suite; do
    case $suite in
        # The debug profile is built in a tenth of the time.
        lib) run lib sh tests/cross.sh aarch64 cargo test --locked --no-fail-fast --lib ;;
        golden)
            mkdir -p target/arm64
            gcc -O1 -Wall -Wextra -static -DPROGRAM="\"$program\"" -DQEMU="\"$(command -v qemu-aarch64-static)\"" \
                -o target/arm64/rdma-init $here/emulate.c
            of_this_machine golden "$PWD/target/arm64/rdma-init"
            ;;
        nccl) RDMA_INIT_TEST_NCCL_ARCHITECTURE=aarch64 of_this_machine nccl "$program" ;;
        vm)
            for machine in aarch64 aarch64-16k; do
                echo "--- arm64: the virtual machine $machine"
                RDMA_INIT_VM_MACHINE=$machine of_this_machine vm "$program"
            done
            ;;
        *) of_this_machine "$suite" "$program" ;;
    esac
done
