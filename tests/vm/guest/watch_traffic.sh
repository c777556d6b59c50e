#!/bin/sh
# One of two machines with two soft-RoCE rails between them. On the first, jobs run under watchers, in the network
# namespace of the devices and in one that shares them, while data moves over the first rail: as long as nothing is
# wrong, no line comes; when packets are lost, the line of both names the rail.
#   watch_traffic.sh BINARY NUMBER SECONDS     the second one is the peer; SECONDS without a fault
set -eu
. tests/vm/lib.sh
. tests/vm/watchers.sh
init=$1
number=$2
seconds=$3
# Lost packets are said of from 60 on, and an emulated processor sends few.
interval=10

rails "$number"
peer() { ib_write_bw --CPU-freq --ib-dev mlx5_1 --gid-index "$(gid_slots mlx5_1 "$(rail_address 1 "$number")")" \
    --size 4096 --mtu 1024 --duration 10 --run_infinitely "$@" >/run/peer 2>&1; }

if [ "$number" = 2 ]; then
    # The first machine ends it.
    peer || :
    exit 0
fi

peers=/sys/class/infiniband/mlx5_1/ports/1/hw_counters
# moves COUNT: whether so many more packets have come than at `before`.
moves() { [ "$(cat $peers/rcvd_pkts)" -gt $((before + $1)) ]; }
container_netns pod eth1 net1 25.11.128.9/27
container_netns pod eth2 net2 25.11.128.41/27
before=$(cat $peers/rcvd_pkts)
# Until the other machine listens.
(until peer "$(rail_address 1 2)" || [ -e /run/over ]; do sleep 0.5; done) &
await_limit=120 await 'traffic' moves 100

echo "--- $seconds s without a fault"
watch host pod --watch-after 20s
sent=$(cat $peers/sent_pkts)
before=$(now_ms)
while [ $(($(now_ms) - before)) -lt $((seconds * 1000)) ]; do
    sleep 1
    [ "$(cat $peers/sent_pkts)" -gt "$sent" ] || fail "the traffic has ended: $(cat /run/peer)"
    sent=$(cat $peers/sent_pkts)
done
for place in host pod; do
    lines 'no line' $place ''
done

echo '--- packets are lost'
retries=$(cat $peers/completer_retry_err)
event tc qdisc add dev eth1 root netem loss 20%
said 'packets are lost' 'note: Packets were sent again in .*: mlx5_1: completer_retry_err rose by [0-9]*\.$' host pod
echo "ok: $(($(cat $peers/completer_retry_err) - retries)) retries by then"
for place in host pod; do
    sed -i 's/in [0-9]*s: mlx5_1: completer_retry_err rose by [0-9]*/in TIME: mlx5_1/' /run/$place
    lines 'no other line' $place 'note: Packets were sent again in TIME: mlx5_1.'
done
tc qdisc del dev eth1 root
: >/run/over
pkill ib_write_bw || fail "the traffic has ended: $(cat /run/peer)"
end
