#!/bin/sh
# Runs one of three machines with two soft-RoCE rails between them, and a network for TCP. Tests the
# preflight of the three with packets that are blocked, lost or late, and with an address that two nodes have.
#   preflight_paths.sh BINARY NUMBER       1 is node 0
set -eu
. tests/vm/lib.sh
. tests/vm/job.sh

# move_to RAIL NUMBER: gives this machine only that machine's address on this rail.
move_to() {
    ip addr flush dev "eth$1" scope global
    ip addr add "$(rail_address "$1" "$2")/27" dev "eth$1"
    await 'GID' has_gids "mlx5_$1" "$(rail_address "$1" "$2")"
}

# drop_some PERCENT: drops this share of the packets that this machine sends over its second rail.
drop_some() { tc qdisc replace dev eth2 root netem loss "$1%"; }

next 'two nodes with one GID on a rail'
[ "$number" != 3 ] || move_to 2 2
job 1
has 'both are named' 'node2 and node3 have the same .* on rail 1'
[ "$number" != 1 ] || expect 'this is all' "$(grep -c '^  FAILED' /run/out)" 1
[ "$number" != 3 ] || move_to 2 3
ip neigh flush dev eth2

next 'nothing reaches one rail of one node'
each=10s
[ "$number" = 3 ] || lose 2 3
job 1
accuses 'node3.*mlx5_2'
[ "$number" = 3 ] || find_again 2 3
each=20s

next 'one rail of one node is slow'
[ "$number" != 3 ] || tc qdisc add dev eth2 root netem delay 100ms rate 4mbit
job 1 --min-bandwidth 0.004 --enforce-slow
accuses 'node3 mlx5_2:1: .* at best, but .* is wanted'
# Links may also be named, because soft-RoCE retransmits packets whose acknowledgments are late.
[ "$number" != 1 ] || ! grep '^  FAILED' /run/out | grep -v -e node3 -e 'sent again' || fail 'another node is told of'
[ "$number" != 3 ] || tc qdisc del dev eth2 root

# tells_of_no_other: expects that everything slow or failed concerns the node with the lost packets. On a
# busy machine, soft-RoCE sometimes gives up a connection, which is a warning, and retransmits packets.
tells_of_no_other() {
    [ "$number" = 1 ] || return 0
    ! grep -E '^  (FAILED|slow)' /run/out | grep -v -e node3 -e 'sent again' || fail 'another node is told of'
    echo 'ok: no other node is told of'
}

# The machines are emulated, and retransmit about as many packets only because they are late.
next '1 % of the packets of one rail of one node are lost'
[ "$number" != 3 ] || drop_some 1
job 0
tells_of_no_other

# So many packets are lost that a write may use up all of its retries, so it is random whether the job
# passes.
next '10 % of the packets of one rail of one node are lost'
[ "$number" != 3 ] || drop_some 10
node || :
cat /run/out
[ "$number" != 1 ] || has 'it is told' '^  \(FAILED\|slow\|warning\) .*node3'
tells_of_no_other
