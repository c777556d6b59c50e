#!/bin/sh
# Tests what the self-test finds out about soft-RoCE devices: a working one, and the possible problems. It
# runs in the host's network namespace, because the soft-RoCE of Linux 6.1 looks for routes only there
# (rxe_find_route4 in drivers/infiniband/sw/rxe/rxe_net.c).
#   self_test.sh BINARY
set -eu
. tests/vm/lib.sh
init=$1

# probe TIME HCAS [ARGUMENT...]: runs a self-test of these HCAs; writes the output to /run/out, and shows
# it.
probe() {
    each=$1
    hcas=$2
    shift 2
    NCCL_IB_HCA="=$hcas" $run "$init" self-test --each "$each" --only verbs-open --only verbs-memory \
        --only verbs-loopback --json "$@" >/run/out 2>/run/report || :
    cat /run/out /run/report
}
run=

# outcomes NAME WANTED: compares the outcomes of this check for all ports, in order.
outcomes() {
    expect "$1" "$(grep -o '"outcome":"[a-z]*"' /run/out | cut -d'"' -f4 | xargs)" "$2"
}

rxe mlx5_1 eth1 25.11.128.2/27
rxe mlx5_2 eth2 25.11.128.34/27

echo '--- two devices that work'
probe 60s mlx5_1,mlx5_2
outcomes 'all pass' 'passed passed passed passed passed passed'
expect 'verified on both' "$(grep -o 'arrived unchanged' /run/out | wc -l)" 2
has 'the size' '64 MiB registered in'
has 'the address' '::ffff:25.11.128.34'
has 'latency' '8 bytes there and back in [1-9]'
has 'bandwidth' '[1-9][0-9]* Mbit/s within the device'

echo '--- a slot that is empty'
export NCCL_IB_GID_INDEX=99
probe 60s mlx5_1 --size 1048576
unset NCCL_IB_GID_INDEX
outcomes 'the loopback fails' 'passed passed failed'
has 'the slot is named' 'entry 99 of the GID table is empty'

echo '--- 64 KiB of memory, and no capability'
chmod 0666 /dev/infiniband/uverbs*
cat >/run/user <<'END'
#!/bin/sh
ulimit -l 64
exec setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all "$@"
END
chmod 0755 /run/user
run=/run/user
probe 60s mlx5_1
outcomes 'memory fails' 'passed failed skipped'
has 'the errno' 'ibv_reg_mr failed: ENOMEM'
has 'the limit' 'Only 64 KiB of memory can be pinned'
run=

# probing PID: finds a child of this process that has opened a device, once there is one.
probing() {
    read -r children <"/proc/$1/task/$1/children" || :
    for child in ${children:-}; do
        # shellcheck disable=SC2012
        if ls -l "/proc/$child/fd" 2>/dev/null | grep -q uverbs; then return 0; fi
    done
    return 1
}

# stopped TIME: tests both devices in the background ($running), with enough memory to take a while, and
# stops one of the probes in the middle: $child.
stopped() {
    for _ in 1 2 3 4 5 6 7 8; do
        "$init" self-test --each "$1" --size 536870912 --only verbs-open --only verbs-memory \
            --only verbs-loopback --json >/run/out &
        running=$!
        # A process that has ended has no program any more.
        while [ -e "/proc/$running/exe" ]; do
            if probing "$running" 2>/dev/null && kill -STOP "$child" 2>/dev/null; then return; fi
        done
        wait "$running" || :
    done
    fail 'no probe could be stopped'
}

echo '--- a probe that hangs beside one that works'
stopped 60s
wait "$running" || :
cat /run/out
has 'the time' 'did not finish within [0-9.]* s and was killed'
expect 'one fails, the other does not' "$(grep -o '"outcome":"failed"' /run/out | wc -l)" 1
has 'the other works' 'arrived unchanged'
[ ! -e "/proc/$child" ] || fail "process $child is left"

echo '--- a device that is removed while it is tried'
stopped 60s
device=$(ls -l "/proc/$child/fd" | grep -o 'uverbs[0-9]*')
hca=$(cat "/sys/class/infiniband_verbs/$device/ibdev")
rdma link delete "$hca" &
deleting=$!
kill -CONT "$child"
wait "$running" || :
cat /run/out
wait "$deleting" || :
[ ! -e "/sys/class/infiniband/$hca" ] || fail 'the device is still there'
# Soft-RoCE has no disassociate_ucontext: the kernel waits until the probe has closed the device, so the
# probe finishes.
has 'the probe is over' '"id":"verbs-memory"'
