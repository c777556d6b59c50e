#!/bin/sh
# Runs one of two machines with two soft-RoCE rails between them, and a link for TCP. Tests the self-test of
# the pair, both without a problem and with problems at one end.
#   pair.sh BINARY NUMBER       1 listens, 2 connects to it
set -eu
. tests/vm/lib.sh
init=$1
number=$2

rails "$number"
export RDMA_INIT_TOKEN='a secret of 2 nodes'

port=18516
wait=10m
each=5m

out=/run/out

# pair CODE [ARGUMENT...]: tests with the other machine; writes the output to the file $out, and shows it.
pair() {
    wanted=$1
    shift
    case $number in
        1) set -- --listen "10.9.0.1:$port" "$@" ;;
        2) set -- --peer "node1:$port" "$@" ;;
    esac
    code=0
    "$init" self-test --wait "$wait" --each "$each" --size 1048576 "$@" >$out 2>&1 || code=$?
    cat $out
    expect 'exit code' "$code" "$wanted"
}

echo '--- a fabric that is sound'
pair 0
for hca in mlx5_1 mlx5_2; do
    has "$hca" "ok *pair-data $hca:1 .*data arrived unchanged, to $hca:1 of vm and from it"
    has "the figures of $hca" "$hca:1 - $hca:1 .* us .* Mbit/s .* Mbit/s"
done
has 'the family' 'ok *pair-gid .*RoCE v2, IPv4'

echo '--- no token, and two'
RDMA_INIT_TOKEN='' pair 125
has 'both ways are told' 'RDMA_INIT_TOKEN .*--any-peer'
RDMA_INIT_TOKEN='' pair 0 --any-peer --only pair-connect --only pair-data
has 'it is said aloud' 'ok *pair-connect .*it is not authenticated'
# The listening node listens for another one until its time is over, while the other tests go on at another port.
port=18517
other_token() { RDMA_INIT_TOKEN="$RDMA_INIT_TOKEN, $number" pair 1 --only pair-connect --only pair-data; }
is_named() { has 'it is named' 'FAILED: pair-connect: .* not have the same token'; }
if [ "$number" = 1 ]; then
    (wait=90s out=/run/listening && other_token) &
    listening=$!
else
    other_token
    is_named
fi
port=18518

echo '--- another MTU and another NCCL at one end'
if [ "$number" = 2 ]; then
    ip link set eth2 mtu 4200
    export NCCL_VERSION=2.21.5
else
    export NCCL_VERSION=2.27.7
fi
pair 1
has 'the interface' 'FAILED: pair-mtu: .*mlx5_2 has interface MTU'
has 'the port' 'mlx5_2 has port MTU'
has 'the release' 'FAILED: pair-nccl: NCCL is 2.2'
has 'data moves all the same' 'ok *pair-data mlx5_2:1'
unset NCCL_VERSION
[ "$number" = 1 ] || ip link set eth2 mtu 1500

echo '--- a rail on which packets are lost'
# The end that waits for lost packets waits for most of this time.
each=40s
[ "$number" = 2 ] || lose 2 2
pair 1
has 'the rail' 'FAILED: pair-data mlx5_2:1'
has 'the other is sound' 'ok *pair-data mlx5_1:1'
if [ "$number" = 1 ]; then
    has 'the reason' 'transport retry counter exceeded'
    find_again 2 2
else
    has 'what the other end says' 'transport retry counter exceeded'
fi
has 'what to do' 'fix: Packets do not arrive'

each=5m

echo '--- another family of addresses at one end'
[ "$number" = 1 ] || other_family 2
pair 1
has 'it is named' 'FAILED: pair-gid: the nodes differ: mlx5_1: RoCE v2, IPv'
has 'no data is tried' 'skipped *pair-data mlx5_1:1.*GIDs of different kinds'
if [ "$number" = 1 ]; then
    wait $listening || fail 'the node whose token is another one'
    cp /run/listening $out
    is_named
fi
