#!/bin/sh
# Runs one of two machines with two soft-RoCE rails between them. Each has a container with an overlay network alone, and
# data moves between the containers over the rails, by the machines' own GIDs.
#   node_gid_pair.sh BINARY NUMBER
set -eu
. tests/vm/lib.sh
init=$1
number=$2
other=$((3 - number))

rails "$number"
overlay_netns pod "$number"
ip route add "10.244.$other.0/24" via "10.9.0.$other"

case $number in
    1) set -- --listen 10.244.1.2:18516 ;;
    2) set -- --peer 10.244.1.2:18516 ;;
esac
code=0
RDMA_INIT_TOKEN='a secret of 2 nodes' RDMA_INIT_LIBRARIES=nccl \
    in_container pod "$init" self-test --wait 10m --each 5m --size 1048576 "$@" >/run/out 2>&1 || code=$?
cat /run/out
expect 'the self-test' "$code" 0
for rail in 1 2; do
    own=$(rail_address "$rail" "$number")
    has "the machine's GID on rail $rail" "ok *verbs-loopback mlx5_$rail:1 .*GID ::ffff:$own;"
    has 'data' "ok *pair-data mlx5_$rail:1 .*data arrived unchanged, to mlx5_$rail:1 of vm and from it"
done

echo '--- who has found the way'
for rail in 1 2; do
    peer=$(rail_address "$rail" "$other")
    ip neigh show dev "eth$rail" >/run/out
    has "the machine has the MAC address of rail $rail" "^$peer lladdr"
    ! ip -netns pod route get "$peer" 2>/run/out || fail "the container has a route to $peer"
    has 'the container has no route' 'Network is unreachable'
done
