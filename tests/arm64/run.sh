#!/bin/sh
# Runs the test suites with the program for arm64, on a machine of another architecture: QEMU runs the
# program, and this machine the tests around it. The unit tests run completely in QEMU. The suite of virtual
# machines boots arm64 kernels with pages of 4 KiB and of 16 KiB: scripts that depend on the page size run
# with both.
#
#     tests/arm64/run.sh [SUITE...]      runs some of lib, golden, cli, init, nccl and vm, or all, at the same time
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

# run NAME THREADS FILTER COMMAND...: runs `cargo test` for what begins with FILTER, with this many tests at the same time,
# without the tests in the list under NAME.
run() {
    name=$1
    threads=$2
    filter=$3
    shift 3
    echo "--- arm64: $name"
    there=$("$@" -- --list 2>/dev/null)
    if [ "$name" = golden ]; then
        # The name of a host may be the beginning of another one.
        # shellcheck disable=SC2046
        set -- "$@" -- --exact $(other_hosts)
    else
        # shellcheck disable=SC2086
        set -- "$@" -- $filter
    fi
    # No test name contains a space.
    # shellcheck disable=SC2013
    for skipped in $(sed -n "s/^$name \([^ ]*\) .*/\1/p" "$here/skipped"); do
        if [ "$(echo "$there" | grep -F "$skipped")" != "$skipped: test" ]; then
            echo "$here/skipped names $skipped, which is no test of $name, or part of another one's name" >&2
            exit 1
        fi
        set -- "$@" --skip "$skipped"
    done
    "$@" --test-threads "$threads"
}

# of_this_machine NAME THREADS FILTER PROGRAM [TEST]: runs tests that have this machine's architecture themselves, with
# this program.
of_this_machine() {
    RDMA_INIT_TEST_BINARY=$4
    export RDMA_INIT_TEST_BINARY
    run "$1" "$2" "$3" cargo test --locked --no-fail-fast --test "${5:-suite}"
}

# machine NAME LISTED: runs the suite `vm` in the virtual machine of that name, after setting it up.
machine() {
    RDMA_INIT_VM_MACHINE=$1 sh tests/vm/setup.sh || return
    RDMA_INIT_VM_MACHINE=$1 of_this_machine "$2" 16 vm:: "$program"
}

# Many of the tests only wait, so eight of them can run at the same time.
one() {
    case $1 in
        # One test at a time: in QEMU, a process that another test forked takes a long time to close its
        # inherited descriptors.
        lib) run lib 1 '' sh tests/cross.sh aarch64 cargo test --locked --no-fail-fast --lib ;;
        golden)
            gcc -O1 -Wall -Wextra -static -DPROGRAM="\"$program\"" -DQEMU="\"$(command -v qemu-aarch64-static)\"" \
                -o target/arm64/rdma-init $here/emulate.c
            of_this_machine golden 2 '' "$PWD/target/arm64/rdma-init" golden
            ;;
        nccl) RDMA_INIT_TEST_NCCL_ARCHITECTURE=aarch64 of_this_machine nccl 2 nccl:: "$program" ;;
        vm)
            machine aarch64 vm || return
            machine aarch64-16k vm-16k
            ;;
        *) of_this_machine "$1" 8 "$1::" "$program" ;;
    esac
}

[ $# -gt 0 ] || set -- vm lib golden cli init nccl
mkdir -p target/arm64
# What waits overlaps with what computes. The output of each is shown once it has ended.
running=
for suite; do
    (one "$suite") >"target/arm64/$suite.log" 2>&1 &
    running="$running $suite:$!"
done
failed=
for suite in $running; do
    wait "${suite#*:}" || failed="$failed ${suite%:*}"
    cat "target/arm64/${suite%:*}.log"
done
[ -z "$failed" ] || { echo "failed for arm64:$failed" >&2; exit 1; }
