#!/bin/sh
# Tests an RDMA device that the kernel keeps in one network namespace, and a container in another namespace
# that has the uverbs node anyway: the finding appears there, and only there.
#   rdma_namespace.sh BINARY
set -eu
. tests/vm/lib.sh
init=$1

# The machine may have UCX, for which a variable would be set as well.
export RDMA_INIT_LIBRARIES=nccl

# pod: makes the container, with a link on the interface of the HCA.
pod() { container_netns pod eth1 net1 25.11.128.9/27; }

# mode NAME: sets the mode. The kernel refuses this while a second network namespace exists, and takes some
# time to end one.
mode() { await "mode $1" rdma system set netns "$1"; }

# finds_it COMMAND...: COMMAND runs a plan that uses the HCA and has no finding about namespaces.
finds_it() {
    "$@" "$init" plan >/run/out
    cat /run/out
    has 'the HCA is used' '^ *use *mlx5_1 '
    ! grep -q 'namespace' /run/out || fail 'the finding comes without its cause'
}

rxe mlx5_1 eth1 25.11.128.2/27

echo '--- shared: all namespaces see the device'
expect 'the mode' "$(rdma system | cut -d' ' -f1,2)" 'netns shared'
pod
finds_it in_container pod
ip netns del pod

echo '--- exclusive, in a namespace that does not have the device'
mode exclusive
pod
expect 'devices of the container' "$(in_container pod ls /sys/class/infiniband)" ''
expect 'nodes of the container' "$(in_container pod ls /dev/infiniband)" uverbs0
in_container pod "$init" plan >/run/out
cat /run/out
has 'what is wrong' 'error: /dev/infiniband/uverbs0 exists, but its RDMA device is in another network namespace'
has 'what to do' 'fix: .*rdma dev set NAME netns PID'
expect 'this is all' "$(grep -c 'error:\|warning:' /run/out)" 1
in_container pod "$init" plan --json >/run/out
has 'its identifier' 'rdma-namespace'
in_container pod setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all "$init" plan >/run/out
has 'a user is told, too' 'is in another network namespace'

echo '--- exclusive, in the namespace that has the device'
finds_it env

echo '--- exclusive, with the device under another name, as a DRA driver may leave it'
rdma dev set mlx5_1 name rail0
"$init" plan >/run/out
cat /run/out
has 'the renamed HCA is used' 'NCCL_IB_HCA *=rail0 '
rdma dev set rail0 name mlx5_1

echo '--- exclusive, and the device is moved'
# The kernel moves only devices whose driver can take them from their users. The soft-RoCE of Linux 6.1 and 6.12
# cannot (tests/README.md).
if rdma dev set mlx5_1 netns pod 2>/run/why; then
    finds_it in_container pod
    fail 'soft-RoCE can be moved: correct tests/README.md, and test more with the moved device'
fi
expect 'why it cannot be moved' "$(grep -c 'Operation not supported' /run/why)" 1

echo '--- shared again'
ip netns del pod
mode shared
pod
finds_it in_container pod
