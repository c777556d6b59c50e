#!/bin/sh
# One of three machines with two soft-RoCE rails between them, and a network for TCP: the
# preflight of the three, when all is well and with what can be wrong at one of them.
#   preflight.sh BINARY NUMBER       1 is node 0
set -eu
. tests/vm/lib.sh
init=$1
number=$2

hostname "node$number"
ip addr add "10.9.0.$number/24" dev eth0
ip link set eth0 up
rxe mlx5_1 eth1 "25.11.128.$number/27"
rxe mlx5_2 eth2 "25.11.128.$((32 + number))/27"
export NCCL_IB_HCA==mlx5_1,mlx5_2

echo '10.9.0.1 node1' >>/etc/hosts
export RDMA_INIT_TOKEN='a secret of 3 nodes'
port=18516

# job CODE [ARGUMENT...]: all three; in /run/out, shown. A port for each, as who comes early must
# not find the node 0 of the job before.
job() {
    wanted=$1
    shift
    port=$((port + 1))
    code=0
    "$init" preflight --nodes 3 --node $((number - 1)) --meet "node1:$port" --preflight-wait 150s --each 20s \
        "$@" >/run/out 2>&1 || code=$?
    cat /run/out
    expect 'exit code' "$code" "$wanted"
}

# has NAME TEXT: whether it is in /run/out.
has() {
    grep -q -- "$2" /run/out || fail "$1: no $2"
    echo "ok: $1"
}

# accuses NAME: the failures of the verdict name this one, and no other node or rail.
accuses() {
    grep -E 'FAILED  |preflight failed' /run/out >/run/verdict || fail "nothing has failed"
    grep -q -- "$1" /run/verdict || fail "no $1 in the verdict"
    for other in node1 node2 node3; do
        case $1 in
            "$other"*) ;;
            # A clause may say whom a node could not reach.
            *) ! sed 's/(.*//; s/: .*//' /run/verdict | grep -q "FAILED *$other" || fail "$other is accused" ;;
        esac
    done
    echo "ok: $1 is at fault, and nobody else"
}

echo '--- a fabric that is sound'
job 0
if [ "$number" = 1 ]; then
    has 'three nodes' 'passed.*3 nodes, 2 rails'
    has 'the rails' 'mlx5_2:1'
else
    has 'the line' 'preflight passed: 3 nodes, 2 rails'
fi

echo '--- one rail of one node loses all packets'
if [ "$number" = 3 ]; then
    for other in 1 2; do
        ip neigh replace "25.11.128.$((32 + other))" lladdr 02:00:00:00:00:99 dev eth2 nud permanent
    done
fi
job 1
accuses 'node3.*mlx5_2'
if [ "$number" = 3 ]; then
    for other in 1 2; do
        ip neigh del "25.11.128.$((32 + other))" dev eth2
    done
fi

echo '--- another MTU at one node'
if [ "$number" = 2 ]; then ip link set eth2 mtu 4200; fi
job 0
if [ "$number" = 1 ]; then
    has 'it is a warning' 'warning .*mtu differs: .*node2'
fi
if [ "$number" = 2 ]; then ip link set eth2 mtu 1500; fi

echo '--- another family of addresses at one node'
if [ "$number" = 2 ]; then
    for rail in 1 2; do
        ip addr flush dev "eth$rail" scope global
        ip addr add "fd25:11::$rail:2/112" dev "eth$rail" nodad
        await 'GID' has_gids "mlx5_$rail" "fd25:11::$rail:2"
    done
fi
job 1
accuses 'node2'
