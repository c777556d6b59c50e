#!/bin/sh
# Runs the test suites with the program for arm64, on a machine of another architecture: QEMU runs the
# program, and this machine the tests around it. The unit tests run completely in QEMU. The suite of virtual
# machines boots arm64 kernels with pages of 4 KiB and of 16 KiB: scripts that depend on the page size run
# with both.
#
#     tests/arm64/run.sh [SUITE...]      runs some of lib, golden, cli, init, peers, nccl and vm, or all
#
# tests/arm64/skipped lists the tests that QEMU cannot run, each with its reason. RDMA_INIT_TEST_HOSTS=8 takes only each
# eighth golden host: the program starts thousands of times for all of them, and QEMU needs a quarter of a second each time.
set -eu

cd "$(dirname "$0")/../.."
here=tests/arm64
program=$PWD/target/aarch64-unknown-linux-gnu/release/rdma-init
[ -e "$program" ] || { echo "there is no $program: make build-all" >&2; exit 1; }

each=${RDMA_INIT_TEST_HOSTS:-1}

# run NAME THREADS PREFIX COMMAND...: runs with `cargo test` what begins with PREFIX, so many tests at the same time, without
# those in the list under NAME.
run() {
    name=$1
    threads=$2
    prefix=$3
    shift 3
    echo "--- arm64: $name"
    there=$("$@" -- --list 2>/dev/null | sed -n 's/: test$//p')
    skipped=$(for row in $(sed -n "s/^$name \([^ ]*\) .*/\1/p" "$here/skipped"); do
        case $row in
            *::) echo "$there" | grep "^$row" ;;
            *) echo "$there" | grep -xF "$row" ;;
        esac || {
            echo "$here/skipped names $row, and $name has no such test" >&2
            exit 1
        }
    done) || exit
    chosen=$(echo "$there" | grep "^$prefix" | grep -vxF "$skipped")
    if [ "$name" = golden ]; then
        chosen=$(for test in $chosen; do
            [ ! -d "tests/cases/$test" ] || hosts=$((${hosts:-0} + 1))
            [ -d "tests/cases/$test" ] && [ $((hosts % each)) != $((1 % each)) ] || echo "$test"
        done)
    fi
    # No test name contains a space.
    # shellcheck disable=SC2086
    "$@" -- --test-threads "$threads" --exact $chosen
}

# of_this_machine NAME THREADS PREFIX PROGRAM [TEST]: runs tests that have this machine's architecture themselves, with
# this program.
of_this_machine() {
    RDMA_INIT_TEST_BINARY=$4
    export RDMA_INIT_TEST_BINARY
    run "$1" "$2" "$3" cargo test --locked --no-fail-fast --test "${5:-suite}"
}

# machine NAME LISTED: runs the suite `vm` in the virtual machine of that name, after setting it up.
machine() {
    RDMA_INIT_VM_MACHINE=$1 sh tests/vm/setup.sh || return
    RDMA_INIT_VM_MACHINE=$1 of_this_machine "$2" 3 vm:: "$program"
}

# Many of the tests only wait, so more of them than there are processors can run at the same time.
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

# all SUITE...: runs these suites one after the other.
all() {
    failed=
    for suite; do
        one "$suite" || failed="$failed $suite"
    done
    [ -z "$failed" ] || { echo "failed for arm64:$failed" >&2; return 1; }
}

[ $# -gt 0 ] || set -- lib golden cli init peers nccl vm
mkdir -p target/arm64
# The machines run beside the rest, whose output comes first.
machines=
case " $* " in
    *' vm '*)
        (one vm) >target/arm64/vm.log 2>&1 &
        machines=$!
        ;;
esac
status=0
# shellcheck disable=SC2046
all $(printf '%s\n' "$@" | grep -vx vm) || status=1
[ -z "$machines" ] || { wait "$machines" || status=1; cat target/arm64/vm.log; }
exit $status
