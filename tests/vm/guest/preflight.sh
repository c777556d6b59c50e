#!/bin/sh
# Runs one of three machines with two soft-RoCE rails between them, and a network for TCP. Tests the
# preflight of the three, both without a problem and with problems at one of them.
#   preflight.sh BINARY NUMBER       1 is node 0
set -eu
. tests/vm/lib.sh
. tests/vm/job.sh

next 'a fabric that is sound'
job 0
if [ "$number" = 1 ]; then
    has 'three nodes' 'passed.*3 nodes, 2 rails'
    has 'the rails' 'mlx5_2:1'
else
    has 'the line' 'preflight passed: 3 nodes, 2 rails'
fi

next 'one node for which NCCL uses sockets'
[ "$number" != 3 ] || export NCCL_IB_DISABLE=1
job 1
has 'both networks' 'NCCL will use verbs on 2 of 3 nodes (node1, node2: mlx5_1:1, mlx5_2:1) and sockets on 1 (node3: '
unset NCCL_IB_DISABLE

next 'one rail of one node loses all packets'
# A node that waits for lost packets waits for most of this time.
each=20s
[ "$number" != 3 ] || lose 2 1 2
job 1
accuses 'node3.*mlx5_2'
[ "$number" != 3 ] || find_again 2 1 2
each=20s

next 'another MTU at one node'
[ "$number" != 2 ] || ip link set eth2 mtu 4200
job 0
[ "$number" != 1 ] || has 'it is a warning' 'warning .*mtu differs: .*node2'
[ "$number" != 2 ] || ip link set eth2 mtu 1500

next 'one node takes the GIDs of a VLAN that the others are not on'
if [ "$number" = 2 ]; then
    for rail in 1 2; do
        # Without this, it would answer for the VLAN's address on the rail.
        echo 1 >"/proc/sys/net/ipv4/conf/eth$rail/arp_ignore"
        ip link add link "eth$rail" name "vlan$rail" type vlan id 77
        ip addr add "10.77.$rail.2/24" dev "vlan$rail"
        ip link set "vlan$rail" up
        await 'GID' has_gids "mlx5_$rail" "10.77.$rail.2"
    done
    NCCL_IB_GID_INDEX=$(gid_slots mlx5_1 10.77.1.2)
    export NCCL_IB_GID_INDEX
    expect 'the same slot on the other HCA' "$(gid_slots mlx5_2 10.77.2.2)" "$NCCL_IB_GID_INDEX"
fi
job 1
accuses 'node2'
if [ "$number" = 2 ]; then
    unset NCCL_IB_GID_INDEX
    for rail in 1 2; do ip link del "vlan$rail"; done
fi
