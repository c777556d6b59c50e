#!/bin/sh
# Runs the test suites with the program for arm64, on a machine of another architecture: QEMU runs the
# program, and this machine the tests around it. The unit tests run completely in QEMU. The suite of virtual
# machines boots arm64 kernels with pages of 4 KiB and of 16 KiB: scripts that depend on the page size run
# with both.
#
#     tests/arm64/run.sh [SUITE...]      runs some of lib, golden, cli, init, nccl and vm, or all
#
# tests/arm64/skipped lists the tests that QEMU cannot run, each with its reason. RDMA_INIT_TEST_HOSTS=8 takes only each
# eighth golden host: the program starts thousands of times for all of them, and QEMU needs a quarter of a second each time.
set -eu

cd "$(dirname "$0")/../.."
here=tests/arm64
program=$PWD/target/aarch64-unknown-linux-gnu/release/rdma-init
[ -e "$program" ] || { echo "there is no $program: make build-all" >&2; exit 1; }

each=${RDMA_INIT_TEST_HOSTS:-1}

# Prints the options that skip each golden host but those that are taken.
other_hosts() {
    find tests/cases -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort |
        awk -v each="$each" 'NR % each != 1 && each > 1 { print "--skip " $0 }'
}

# run SUITE THREADS COMMAND...: runs `cargo test` for one suite with this many tests at the same time,
# without the tests in the list.
run() {
    suite=$1
    threads=$2
    shift 2
    echo "--- arm64: $suite"
    there=$("$@" -- --list 2>/dev/null)
    set -- "$@" -- --test-threads "$threads" --exact
    # No test name contains a space.
    # shellcheck disable=SC2046
    [ "$suite" != golden ] || set -- "$@" $(other_hosts)
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

# of_this_machine SUITE THREADS PROGRAM [NAME]: runs a suite whose tests have this machine's architecture.
# NAME is the suite's name in the list.
of_this_machine() {
    RDMA_INIT_TEST_BINARY=$3
    export RDMA_INIT_TEST_BINARY
    run "${4:-$1}" "$2" cargo test --locked --no-fail-fast --test "$1"
}

# machine NAME SUITE: runs a suite in the virtual machine of that name, after setting it up.
machine() {
    RDMA_INIT_VM_MACHINE=$1 sh tests/vm/setup.sh || return
    RDMA_INIT_VM_MACHINE=$1 of_this_machine vm 2 "$program" "$2"
}

# Many of the tests only wait, so eight of them can run at the same time.
one() {
    case $1 in
        # One test at a time: in QEMU, a process that another test forked takes a long time to close its
        # inherited descriptors.
        lib) run lib 1 sh tests/cross.sh aarch64 cargo test --locked --no-fail-fast --lib ;;
        golden)
            mkdir -p target/arm64
            gcc -O1 -Wall -Wextra -static -DPROGRAM="\"$program\"" -DQEMU="\"$(command -v qemu-aarch64-static)\"" \
                -o target/arm64/rdma-init $here/emulate.c
            of_this_machine golden 8 "$PWD/target/arm64/rdma-init"
            ;;
        nccl) RDMA_INIT_TEST_NCCL_ARCHITECTURE=aarch64 of_this_machine nccl 2 "$program" ;;
        vm)
            machine aarch64 vm || return
            machine aarch64-16k vm-16k
            ;;
        *) of_this_machine "$1" 8 "$program" ;;
    esac
}

[ $# -gt 0 ] || set -- lib golden cli init nccl vm
failed=
beside=
# The golden hosts measure no times and leave a CPU free, so they run beside the unit tests. Their output is
# shown afterwards.
case " $* " in
    *' lib '*golden*)
        mkdir -p target/arm64
        (one golden) >target/arm64/golden.log 2>&1 &
        beside=$!
        ;;
esac
for suite; do
    [ "$suite" != golden ] || [ -z "$beside" ] || continue
    one "$suite" || failed="$failed $suite"
    [ "$suite" != lib ] || [ -z "$beside" ] || {
        wait "$beside" || failed="$failed golden"
        cat target/arm64/golden.log
    }
done
[ -z "$failed" ] || { echo "failed for arm64:$failed" >&2; exit 1; }
