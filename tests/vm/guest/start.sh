#!/bin/sh
# Tests the self-test as a command, and in PID 1 before the job starts, on two soft-RoCE devices in the
# host's network namespace.
#   start.sh BINARY
set -eu
. tests/vm/lib.sh
init=$1

rxe mlx5_1 eth1 25.11.128.2/27
rxe mlx5_2 eth2 25.11.128.34/27
# The host's primary NIC, which jobs do not use.
rxe mlx5_0 eth0 10.0.60.3/24
ip route add default via 10.0.60.1 dev eth0
node=/dev/infiniband/$(grep -lx mlx5_2 /sys/class/infiniband_verbs/uverbs*/ibdev | cut -d/ -f5)

# self_test CODE ARGUMENT...: writes the output to /run/out, and shows it. In emulation on a busy machine, a
# step may take seconds.
self_test() {
    wanted=$1
    shift
    code=0
    "$init" self-test --each 5m "$@" >/run/out 2>&1 || code=$?
    cat /run/out
    expect 'exit code' "$code" "$wanted"
}

# start CODE ARGUMENT...: runs it as PID 1; the job's output is in /run/job, the report in /run/out.
start() {
    wanted=$1
    shift
    code=0
    rm -f /run/log
    # The job's shell prints its parent process.
    # shellcheck disable=SC2016
    RDMA_INIT_TERMINATION_LOG=/run/log unshare --pid --fork --mount-proc "$init" "$@" -- \
        sh -c 'echo "started by $PPID"' >/run/job 2>/run/out || code=$?
    cat /run/out /run/job
    expect 'exit code' "$code" "$wanted"
}

echo '--- a fabric that is sound'
self_test 0
has 'both are tried' 'ok *verbs-loopback mlx5_2:1 .*arrived unchanged'
self_test 0 --level quick
! grep -q verbs- /run/out || fail 'the quick level tries no device'
self_test 0 --only verbs-open --only verbs-memory --size 1048576 --json
expect 'one document' "$(wc -l </run/out)" 1
has 'in JSON' '"id":"verbs-memory"'
# A start gives each port 5 s, which emulation on a busy machine may exceed.
passes() { (start 0 --self-test enforce); }
await 'start that passes in time' passes
expect 'the job' "$(cat /run/job)" 'started by 1'
has 'the cost is told' 'rdma-init: self-test passed.* on 2 ports, [0-9.]* m\?s)'

echo '--- a port that is down'
ip link set eth2 down
await 'port down' grep -q DOWN /sys/class/infiniband/mlx5_2/ports/1/state
self_test 0
has 'it is named' 'ok *unused .*mlx5_2 skipped: the port is DOWN'
for device in 0 1; do
    ip link set "eth$device" down
    await 'port down' grep -q DOWN "/sys/class/infiniband/mlx5_$device/ports/1/state"
done
start 121 --self-test enforce
expect 'no job' "$(cat /run/job)" ''
has 'it is refused' 'refusing to start the command (exit code 121): self-test = "enforce"'
expect 'the termination log' "$(wc -l </run/log)" 1
start 0 --self-test warn
expect 'the job' "$(cat /run/job)" 'started by 1'
has 'the failure is told' 'FAILED fabric'
for device in 0 1 2; do
    ip link set "eth$device" up
done
ip route replace default via 10.0.60.1 dev eth0
for hca in mlx5_1 mlx5_2; do
    await 'port up' grep -q ACTIVE "/sys/class/infiniband/$hca/ports/1/state"
done
await 'GID' has_gids mlx5_1 25.11.128.2
await 'GID' has_gids mlx5_2 25.11.128.34

echo '--- 64 KiB of memory, and no capability'
chmod 0666 /dev/infiniband/uverbs*
code=0
# The job of a user in a container without capabilities.
(
    ulimit -l 64
    exec setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all \
        "$init" --self-test enforce -- echo started
) >/run/out 2>&1 || code=$?
cat /run/out
expect 'exit code' "$code" 121
has 'the limit by file' 'FAILED: memlock:\|FAILED memlock'
has 'the limit by verbs' 'FAILED: verbs-memory mlx5_1:1.*: ibv_reg_mr failed: ENOMEM'

echo '--- a node that is missing, and one that is denied'
mv "$node" /run/node
self_test 0
has 'the missing one is named' 'ok *unused .*mlx5_2 skipped: .*node'
mv /run/node "$node"
chmod 0600 "$node"
setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all "$init" self-test >/run/out 2>&1 || :
cat /run/out
has 'the denied one is named' '\(warning\|FAILED\): uverbs: .*mlx5_2'
