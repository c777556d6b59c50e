#!/bin/sh
# The watcher beside a job, in the network namespace of the soft-RoCE devices and in one that shares them, whose
# /sys has no counters: what happens to a port gives its line in both within two intervals, and no other line comes.
#   watch.sh BINARY
set -eu
. tests/vm/lib.sh
. tests/vm/watchers.sh
init=$1
interval=5

rxe mlx5_1 eth1 25.11.128.2/27
rxe mlx5_2 eth2 25.11.128.34/27
container_netns pod eth1 net1 25.11.128.9/27
container_netns pod eth2 net2 25.11.128.41/27

echo '--- ports and addresses, with the watcher that is there by default'
watch host pod
event ip link set eth2 down
said 'a link goes down' 'mlx5_2 is no longer active\.$' host pod
event ip link set eth2 up
said 'it comes up' 'mlx5_2 is active again, after ' host pod
await 'GIDs of eth2' has_gids mlx5_2 25.11.128.34 25.11.128.41
event ip addr del 25.11.128.34/27 dev eth2
said 'an address leaves the host' 'mlx5_2 (25.11.128.34), which the job uses, is gone from index ' host
event ip addr add 25.11.128.34/27 dev eth2
said 'and is back' 'mlx5_2 (25.11.128.34) is at index [0-9]* again, after ' host
event ip -netns pod addr del 25.11.128.41/27 dev net2
said 'an address leaves the container' 'mlx5_2 (25.11.128.41), which the job uses, is gone from index ' pod
event rdma link delete mlx5_2
said 'a device is removed' 'mlx5_2 is gone\.$' host pod
lines 'no other line' host 'warning: mlx5_2 is no longer active.
note: mlx5_2 is active again, after TIME
warning: The GID of mlx5_2 (25.11.128.34), which the job uses, is gone from index N: no interface here still has this address.
note: The GID of mlx5_2 (25.11.128.34) is at index N again, after TIME
warning: mlx5_2 is gone.'
lines 'no other line' pod 'warning: mlx5_2 is no longer active.
note: mlx5_2 is active again, after TIME
warning: The GID of mlx5_2 (25.11.128.41), which the job uses, is gone from index N: no interface here still has this address.
warning: mlx5_2 is gone.'
end

# What it moves counts, not its verdict, which on a busy machine may be that it took too long.
moves_data() { "$init" self-test --only verbs-loopback >/run/self_test || cat /run/self_test; }

echo '--- a job that moves nothing, moves data, and stops'
watch host pod --watch-after 4s
lasting=4 said 'nothing moves' 'no data has moved over mlx5_1 in the first ' host pod
event moves_data
said 'something moves' 'Data moves over mlx5_1, after ' host pod
event :
lasting=4 said 'nothing moves any more' 'No data has moved over mlx5_1 for .*, after earlier traffic: the job may have stalled\.$' host pod
for place in host pod; do
    lines 'no other line' $place 'warning: RDMA was planned, but no data has moved over mlx5_1 in the first TIME: the job has not begun to communicate, runs on sockets, or runs on this node alone.
note: Data moves over mlx5_1, after TIME
warning: No data has moved over mlx5_1 for TIME, after earlier traffic: the job may have stalled.'
done
end
