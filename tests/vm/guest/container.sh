#!/bin/sh
# Tests a host with two soft-RoCE HCAs, and a container with a macvlan on each: the container's addresses
# are in other entries of the GID tables than the host's, and the program must choose the container's.
#   container.sh BINARY
set -eu
. tests/vm/lib.sh
init=$1

# The machine may have UCX, for which a variable would be set as well.
export RDMA_INIT_LIBRARIES=nccl

rxe mlx5_1 eth1 25.11.128.2/27
rxe mlx5_2 eth2 25.11.128.34/27
# The host's primary NIC, with the default route.
rxe mlx5_0 eth0 10.0.60.3/24

echo '--- the host itself'
ip route add default via 10.0.60.1 dev eth0
"$init" plan --evidence
expect 'variables of the host' "$("$init" env --format docker | sort | xargs)" \
    'NCCL_IB_GID_INDEX=1 NCCL_IB_HCA==mlx5_1,mlx5_2 NCCL_SOCKET_IFNAME=eth0'

container_netns pod eth1 net1 25.11.128.9/27
container_netns pod eth2 net2 25.11.128.41/27
container_netns pod eth0 eth0 10.0.60.77/24
ip -netns pod route add default via 10.0.60.1 dev eth0
slot=$(gid_slots mlx5_1 25.11.128.9)
expect 'the same slot on the other HCA' "$(gid_slots mlx5_2 25.11.128.41)" "$slot"
[ "$slot" != "$(gid_slots mlx5_1 25.11.128.2)" ] || fail "host and container share slot $slot"

echo '--- a container, as PID 1'
# shellcheck disable=SC2016
in_container pod "$init" -- sh -c '
    echo "parent $PPID"
    env | grep ^NCCL_ | sort
    echo "memlock $(ulimit -l)"
' >/run/out 2>/run/report
cat /run/report /run/out
expect 'what the command gets' "$(xargs </run/out)" \
    "parent 1 NCCL_IB_GID_INDEX=$slot NCCL_IB_HCA==mlx5_1,mlx5_2 NCCL_SOCKET_IFNAME=eth0 memlock unlimited"
grep -q 'RoCE, 2 of 3 ports' /run/report || fail 'the report lacks its headline'

echo '--- the 1024 slots cost no 9000 system calls'
# On one CPU: on two CPUs of a busy machine, the kernel waits for a tick at each call, until the process
# that strace examines is off the other CPU.
calls=$(taskset 1 strace -f -c -e trace=openat,open,read "$init" env --format docker 2>&1 >/dev/null |
    awk '$NF == "total" { print $4 }')
echo "open and read: $calls"
[ "$calls" -lt 2500 ] || fail "$calls calls to read three GID tables"

echo '--- slots that differ between the HCAs'
container_netns odd eth1 net1 25.11.128.10/27
container_netns pod2 eth1 net1 25.12.0.11/27
container_netns pod2 eth2 net2 25.12.0.43/27
first=$(gid_slots mlx5_1 25.12.0.11)
second=$(gid_slots mlx5_2 25.12.0.43)
[ "$first" != "$second" ] || fail "both in slot $first: the case is not made"
in_container pod2 "$init" plan | tee /run/out
grep -q 'No single GID index is right for every HCA' /run/out ||
    fail 'what a release that is not known cannot use is not named'
# In an image with an NCCL version that searches for the GID.
in_container pod2 env NCCL_VERSION=2.27.7 "$init" plan --evidence
in_container pod2 env NCCL_VERSION=2.27.7 "$init" env --format docker >/run/out
! grep -q NCCL_IB_GID_INDEX /run/out || fail 'one index for slots that differ'
expect 'a range that leads NCCL to each' "$(grep RANGE /run/out)" NCCL_IB_ADDR_RANGE=25.12.0.0/26

echo '--- a port that goes down, a node that is missing, a node that is denied'
ip link set eth2 down
await 'port down' grep -q DOWN /sys/class/infiniband/mlx5_2/ports/1/state
in_container pod "$init" plan | tee /run/out
grep -q 'warning: mlx5_2:1 skipped: the port is DOWN' /run/out ||
    fail 'the port that is down is not named'
expect 'the other HCA alone' "$(in_container pod "$init" env --format docker | grep HCA)" NCCL_IB_HCA==mlx5_1
ip link set eth2 up
await 'port up' grep -q ACTIVE /sys/class/infiniband/mlx5_2/ports/1/state
node=/dev/infiniband/$(grep -lx mlx5_2 /sys/class/infiniband_verbs/uverbs*/ibdev | cut -d/ -f5)
mv "$node" /run/node
expect 'without the node' "$(in_container pod "$init" env --format docker | grep HCA)" NCCL_IB_HCA==mlx5_1
mv /run/node "$node"
chmod 0600 "$node"
in_container pod setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all "$init" plan >/run/out 2>&1
cat /run/out
grep -q 'EACCES' /run/out || fail 'the node that is denied is not named'

echo '--- memory, as root, as a user, and as a user who was granted IPC_LOCK'
chmod 0666 /dev/infiniband/uverbs*
# in_container inherits the limit of this shell.
ulimit -l 64
in_container pod sh -c "exec setpriv --bounding-set=-sys_resource,-ipc_lock --inh-caps=-all \
    '$init' -- true" 2>/run/report
cat /run/report
grep -q 'Only 64 KiB of memory can be pinned' /run/report || fail 'root without capabilities'
in_container pod setpriv --reuid 1000 --regid 1000 --clear-groups \
    --bounding-set=-all,+ipc_lock "$init" -- true 2>/run/report
cat /run/report
grep -q 'does not reach its user, uid 1000' /run/report || fail 'the trap of IPC_LOCK and a user'
status=0
in_container pod setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all \
    "$init" --memlock enforce -- true 2>/run/report || status=$?
expect 'enforce refuses' $status 121
in_container pod setpriv --bounding-set=-all,+ipc_lock "$init" -- true 2>/run/report
cat /run/report
grep -q 'CAP_IPC_LOCK lifts it' /run/report || fail 'root with IPC_LOCK'

echo '--- the providers that are linked in'
"$init" verbs-probe | tee /run/out
expect 'devices that register memory' "$(grep -c '"registered": 1048576' /run/out)" 3
