#!/bin/sh
# One of three machines with two soft-RoCE rails between them, and a network for TCP: the preflight of the
# three, where packets do not get through, get lost, or belong to two nodes.
#   preflight_paths.sh BINARY NUMBER       1 is node 0
set -eu
. tests/vm/lib.sh
. tests/vm/job.sh

# move_to RAIL NUMBER: this machine has the address of that one on this rail, and no other one.
move_to() {
    ip addr flush dev "eth$1" scope global
    ip addr add "$(rail_address "$1" "$2")/27" dev "eth$1"
    await 'GID' has_gids "mlx5_$1" "$(rail_address "$1" "$2")"
}

# drop_some PERCENT: so many of the packets that this machine sends over its second rail are lost.
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

# tells_of_no_other: what is slow or has failed has to do with the node whose packets are lost. On a busy machine,
# soft-RoCE gives up a connection now and then, which is a warning, and sends packets again.
tells_of_no_other() {
    [ "$number" = 1 ] || return 0
    ! grep -E '^  (FAILED|slow)' /run/out | grep -v -e node3 -e 'sent again' || fail 'another node is told of'
    echo 'ok: no other node is told of'
}

# The machines are emulated: what they send again because they are late is about as much.
next '1 % of the packets of one rail of one node are lost'
[ "$number" != 3 ] || drop_some 1
job 0
tells_of_no_other

# So many are lost that a write may use up all of its retries: whether the job passes is a matter of luck.
next '10 % of the packets of one rail of one node are lost'
[ "$number" != 3 ] || drop_some 10
node || :
cat /run/out
[ "$number" != 1 ] || has 'it is told' '^  \(FAILED\|slow\|warning\) .*node3'
tells_of_no_other
