#!/bin/sh
# Two nodes of a job on this machine, with a preflight over verbs between their rails. Their commands move data over both
# rails, and stop; the watcher of node 0 says that the job has stalled.
#   watch_job.sh BINARY
set -eu
. tests/vm/lib.sh
. tests/vm/watchers.sh
. tests/vm/wires.sh
init=$1
interval=5

wire 1
wire 2

# What a node's command does: it moves data for some seconds, and waits for its end.
cat >/run/command <<'J'
. tests/vm/lib.sh
. tests/vm/wires.sh
: >"/run/$1.runs"
for rail in 1 2; do
    [ "$1" = peer ] || await 'other node' peer_waits $rail
    mover "$1" $rail --duration 15 --qp-timeout 18 >"/run/$1_$rail" 2>&1 &
done
wait
: >"/run/$1.stopped"
read -r _ <"/run/$1.end"
J

# node NUMBER END: starts the node with the rails of this end. /run/nodeNUMBER is its standard error.
node() {
    # shellcheck disable=SC2016
    RDMA_INIT_TOKEN='a secret of 2 nodes' RDMA_INIT_STATE_DIR="/run/state$1" RDMA_INIT_WRITE_NCCL_CONF=false \
        NCCL_IB_HCA="=$2_1,$2_2" \
        unshare --uts --pid --fork --mount-proc sh -c 'hostname "$0"; exec "$@"' "gpu-$1" "$init" \
        --preflight enforce --preflight-nodes 2 --preflight-node "$1" --preflight-meet 127.0.0.1:18516 \
        --preflight-wait 10m --preflight-each 5m --prepare-timeout 20m --watch-after 20s \
        --watch-interval "${interval}s" -- sh /run/command "$2" 2>"/run/node$1" &
    eval "node_$1=$!"
}
start_both() {
    rm -f /run/mlx5.runs /run/peer.runs
    node 0 mlx5
    node 1 peer
}
# have_started: whether both commands run. A start gives each port 5 s for its self-test, which emulation on a busy
# machine may exceed: then, both nodes refuse, and start again.
have_started() {
    for node in 0 1; do
        eval "kill -0 \$node_$node" 2>/dev/null && continue
        grep -q 'refusing to start the command .* failed its own self-test' "/run/node$node" ||
            fail "node $node has ended: $(cat "/run/node$node")"
        # shellcheck disable=SC2154
        wait "$node_0" "$node_1" || :
        echo "the nodes start again: $(grep 'refusing to start the command' "/run/node$node")"
        start_both
        return 1
    done
    [ -e /run/mlx5.runs ] && [ -e /run/peer.runs ]
}
mkfifo /run/mlx5.end /run/peer.end
start_both
await_limit=900 await 'start of both commands' have_started
# have_stopped: whether the traffic of both nodes has ended; fails if a node has ended.
have_stopped() {
    for node in 0 1; do
        eval "kill -0 \$node_$node" 2>/dev/null || fail "node $node has ended: $(cat "/run/node$node")"
    done
    [ -e /run/mlx5.stopped ] && [ -e /run/peer.stopped ]
}
await 'end of the traffic' have_stopped
grep -q 'preflight passed: 2 nodes, 2 rails' /run/node0 || fail "the preflight did not pass: $(cat /run/node0)"
echo 'ok: the preflight over verbs'
said 'each node' 'after earlier traffic: the job may have stalled\.$' node0 node1
said 'the job' 'UTC: The job has stalled since ' node0
for end in mlx5 peer; do echo >/run/$end.end; done
# shellcheck disable=SC2015,SC2154
{ wait "$node_0" && wait "$node_1"; } || fail "a node failed: $(cat /run/node0 /run/node1)"
cat /run/node0
sed -i 's/ since [0-9:]* UTC, .* ago: the nodes stopped within [^,]*,/ since TIME: the nodes stopped within TIME,/' /run/node0
# Where the processor is emulated, the commands may need more than this time to begin, and the watcher says so. One node
# ends before the other.
after_the_begin() {
    grep -v -e ' in the first TIME: ' -e '^note: Data moves over .*, after TIME$' -e "(node 0)'s command ended" |
        sed -E 's/^(note|warning): (No data has moved|The job has stalled)/\2/' | awk '!known[$0]++'
}
lines 'no other line' node0 'No data has moved over mlx5_1, mlx5_2 for TIME, after earlier traffic: the job may have stalled.
The job has stalled since TIME: the nodes stopped within TIME, none clearly first; all nodes wait.' after_the_begin
lines 'no other line' node1 'No data has moved over peer_1, peer_2 for TIME, after earlier traffic: the job may have stalled.' after_the_begin
