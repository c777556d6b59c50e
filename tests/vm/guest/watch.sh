#!/bin/sh
# The watcher beside a job, in the network namespace of the soft-RoCE devices and in one that shares them, whose
# /sys has no counters: what happens to a port gives its line in both, and no other line comes.
#   watch.sh BINARY
set -eu
. tests/vm/lib.sh
. tests/vm/watchers.sh
init=$1
interval=2

rxe mlx5_1 eth1 25.11.128.2/27
rxe mlx5_2 eth2 25.11.128.34/27
container_netns pod eth1 net1 25.11.128.9/27
container_netns pod eth2 net2 25.11.128.41/27

echo '--- ports and addresses, with the watcher that is there by default'
# It gets each warning, and none of its processes is one of the job.
printf '#!/bin/sh\ncat >>/run/told\n' >/run/tell
chmod +x /run/tell
watch host pod --on-finding /run/tell
ip link set eth2 down
said 'a link goes down' 'mlx5_2 is no longer active\.$' host pod
ip link set eth2 up
said 'it comes up' 'mlx5_2 is active again, after ' host pod
await 'GIDs of eth2' has_gids mlx5_2 25.11.128.34 25.11.128.41
ip addr del 25.11.128.34/27 dev eth2
said 'an address leaves the host' 'mlx5_2 (25.11.128.34), which the job uses, is gone from index ' host
ip addr add 25.11.128.34/27 dev eth2
said 'and is back' 'mlx5_2 (25.11.128.34) is at index [0-9]* again, after ' host
# The next address gets the lowest free entry, so the old address returns at another index.
ip addr del 25.11.128.34/27 dev eth2
is_gone_again() { [ "$(grep -c 'is gone from index' /run/host)" = 2 ]; }
await 'second line of the address' is_gone_again
ip addr add 25.11.128.35/32 dev eth2
ip addr add 25.11.128.34/27 dev eth2
said 'is elsewhere' 'mlx5_2 (25.11.128.34) has moved from index ' host
ip -netns pod addr del 25.11.128.41/27 dev net2
said 'an address leaves the container' 'mlx5_2 (25.11.128.41), which the job uses, is gone from index ' pod
rdma link delete mlx5_2
said 'a device is removed' 'mlx5_2 is gone\.$' host pod
lines 'no other line' host 'warning: mlx5_2 is no longer active.
note: mlx5_2 is active again, after TIME
warning: The GID of mlx5_2 (25.11.128.34), which the job uses, is gone from index N: no interface here still has this address.
note: The GID of mlx5_2 (25.11.128.34) is at index N again, after TIME
warning: The GID of mlx5_2 (25.11.128.34), which the job uses, is gone from index N: no interface here still has this address.
warning: The GID of mlx5_2 (25.11.128.34) has moved from index N, which the job uses, to 4: NCCL does not search for it, and new connections use what is at index N now.
warning: mlx5_2 is gone.'
lines 'no other line' pod 'warning: mlx5_2 is no longer active.
note: mlx5_2 is active again, after TIME
warning: The GID of mlx5_2 (25.11.128.41), which the job uses, is gone from index N: no interface here still has this address.
warning: mlx5_2 is gone.'
are_told() { [ "$(wc -l </run/told)" = 8 ]; }
await 'command for each warning' are_told
expect 'what the command gets' "$(cut -d'"' -f 4 /run/told | sort | uniq -c | xargs)" '4 gid-changed 4 link-down'
end

# What it moves counts, not its verdict, which on a busy machine may be that it took too long.
moves_data() { "$init" self-test --only verbs-loopback >/run/self_test || cat /run/self_test; }

echo '--- a job that moves nothing, moves data, and stops'
watch host pod --watch-after 4s
said 'nothing moves' 'no data has moved over mlx5_1 in the first ' host pod
moves_data
said 'something moves' 'Data moves over mlx5_1, after ' host pod
said 'nothing moves any more' 'No data has moved over mlx5_1 for .*, after earlier traffic: the job may have stalled\.$' host pod
# Whether a pause is a note or a warning depends on how long this machine takes.
pauses() { sed -E 's/^(note|warning): (RDMA was planned|No data has moved)/\2/' | awk '!known[$0]++'; }
for place in host pod; do
    lines 'no other line' $place 'RDMA was planned, but no data has moved over mlx5_1 in the first TIME: the job has not begun to communicate, runs on sockets, or runs on this node alone.
note: Data moves over mlx5_1, after TIME
No data has moved over mlx5_1 for TIME, after earlier traffic: the job may have stalled.' pauses
done
end
