#!/bin/sh
# Tests which entries of an HCA's GID table a container can use for its queue pairs, in the shared mode of RDMA
# namespaces: entries of the HCA's own interface, which stays with the node; of the container's own interface; and of
# another container's. The kernel takes the namespace from the entry's interface, and never compares it with the
# container's: set_addr_netns_by_gid_rcu in drivers/infiniband/core/addr.c. ib_write_bw is part of perftest.
#   node_gid.sh BINARY
set -eu
. tests/vm/lib.sh
init=$1

# The machine may have UCX, for which a variable would be set as well.
export RDMA_INIT_LIBRARIES=nccl

port=18600

# writer NETNS INDEX [ADDRESS]: this shell becomes ib_write_bw in this network namespace, with a queue pair for this GID
# index of mlx5_1. Without the address of the other end, it waits for that.
writer() {
    netns=$1
    index=$2
    shift 2
    # --CPU-freq skips the check of the CPU clock: on a busy machine, that cannot be determined.
    exec nsenter --net="/run/netns/$netns" ib_write_bw --CPU-freq --ib-dev mlx5_1 --gid-index "$index" --port "$port" \
        --iters 10 --size 1024 --mtu 1024 "$@"
}

# waits NETNS: whether an end waits for the other one there.
waits() {
    nsenter --net="/run/netns/$1" grep -q ":$(printf %04X "$port") .* 0A " /proc/self/net/tcp /proc/self/net/tcp6
}

# connect SERVER INDEX CLIENT INDEX ADDRESS: an end in each of these network namespaces, with queue pairs for these GID
# indexes; ADDRESS is the server's for TCP. Sets `code` to the client's exit code. What the ends print is in /run/server
# and /run/out.
connect() {
    port=$((port + 1))
    (writer "$1" "$2") >/run/server 2>&1 &
    server=$!
    await 'end that waits' waits "$1"
    code=0
    (writer "$3" "$4" "$5") >/run/out 2>&1 || code=$?
    # This end may wait for the other one forever.
    [ "$code" = 0 ] || kill $server 2>/dev/null || :
    served=0
    wait $server || served=$?
}

# moves_data NAME SERVER INDEX CLIENT INDEX ADDRESS
moves_data() {
    name=$1
    shift
    connect "$@"
    [ "$code $served" = '0 0' ] || cat /run/server /run/out
    expect "$name" "$code $served" '0 0'
}

# connects_alone NAME SERVER INDEX CLIENT INDEX ADDRESS: the kernel connects the queue pairs (both become RTR and RTS), and
# soft-RoCE sends nothing: it looks for the route in the node's namespace alone (rxe_find_route4 in
# drivers/infiniband/sw/rxe/rxe_net.c of Linux 6.1 and 6.12). An HCA sends with what the kernel has resolved.
connects_alone() {
    name=$1
    shift
    connect "$@"
    [ "$code" != 0 ] || fail "$name: soft-RoCE can do this now: test it as the others"
    ! grep -q 'Failed to modify QP' /run/out /run/server || fail "$name: the queue pairs do not connect"
    has "$name" 'Failed status'
}

rxe mlx5_1 eth1 25.11.128.2/27
overlay_netns pod1 1
overlay_netns pod2 2
node=$(gid_slots mlx5_1 25.11.128.2)

echo "--- the node's GID, in two containers with an overlay network alone"
expect 'the mode' "$(in_container pod1 rdma system | cut -d' ' -f1,2)" 'netns shared'
expect 'the interfaces' "$(in_container pod1 ls -x /sys/class/net | xargs)" 'eth0 lo'
! in_container pod1 rdma link show | grep netdev || fail "the HCA's own interface is in the container"
! ip -netns pod1 route get 25.11.128.2 2>/run/out || fail "the container has a route to the HCA's network"
has 'no route' 'Network is unreachable'
moves_data 'data moves by the IPv4 address' pod1 "$node" pod2 "$node" 10.244.1.2
moves_data 'and by the link-local address' pod1 0 pod2 0 10.244.1.2

echo '--- what rdma-init says of it'
in_container pod1 env NCCL_IB_GID_INDEX="$node" "$init" self-test --each 5m --size 1048576 --only verbs-open \
    --only verbs-memory --only verbs-loopback >/run/out
cat /run/out
has 'its own data arrives' 'ok *verbs-loopback mlx5_1:1 .*GID ::ffff:25.11.128.2; .*arrived unchanged'
in_container pod1 "$init" plan >/run/out
cat /run/out
has 'the index' "set *NCCL_IB_GID_INDEX *$node "
has 'whose GID it is' "The job uses the node's GIDs: mlx5_1 with 25.11.128.2 at index $node"
code=0
in_container pod1 "$init" self-test --each 5m --size 1048576 >/run/out || code=$?
cat /run/out
expect 'the self-test' "$code" 0

echo '--- containers with interfaces of their own'
# One has the name of the HCA's own interface.
container_netns own1 eth1 eth1 25.11.128.9/27
container_netns own2 eth1 net1 25.11.128.10/27
own1=$(gid_slots mlx5_1 25.11.128.9)
own2=$(gid_slots mlx5_1 25.11.128.10)
# entry ADDRESS INTERFACE
entry() { echo "$(gid_of "$1") RoCE v2 $2"; }
# link_local INTERFACE [IP-OPTION...]
link_local() { addresses "$@" | grep ^fe80; }
# The first entry is reserved for the HCA's own interface (gid_table_reserve_default in drivers/infiniband/core/cache.c).
# A container sees all names, whatever namespace the interfaces are in.
{
    entry "$(link_local eth1)" eth1
    entry 25.11.128.2 eth1
    entry 25.11.128.9 eth1
    entry "$(link_local eth1 -netns own1)" eth1
    entry 25.11.128.10 net1
    entry "$(link_local net1 -netns own2)" net1
} | awk '{ print NR - 1, $0 }' >/run/wanted
in_container pod1 busybox sh -c '. tests/vm/lib.sh && gid_table mlx5_1' >/run/out
expect 'the table' "$(cat /run/out)" "$(cat /run/wanted)"
connects_alone 'their own GIDs' own1 "$own1" own2 "$own2" 25.11.128.9
connects_alone "other containers' GIDs" pod1 "$own1" pod2 "$own2" 10.244.1.2
