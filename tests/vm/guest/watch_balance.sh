#!/bin/sh
# The watcher beside a job whose data moves over some rails. One of them falls behind because its packets take longer:
# the watcher reports that, in the network namespace of the devices and in one that shares them, and that the rail is
# back, and nothing else. With two rails, this takes five minutes and is reported; with four, after half a minute.
#   watch_balance.sh BINARY 2|4
set -eu
. tests/vm/lib.sh
. tests/vm/watchers.sh
. tests/vm/wires.sh
init=$1
last=$2
interval=5
# A million packets have to move.
mover_quota=

hcas=
for rail in $(seq "$last"); do
    hcas=${hcas:+$hcas,}mlx5_$rail
    wire "$rail"
    container_netns pod "eth$rail" "net$rail" "$(rail_address "$rail" 9)/27"
    # The queue has to be there before the data moves, because the kernel may fail to send while it replaces one.
    tc qdisc add dev "eth$rail" root netem limit 10000
done
NCCL_IB_HCA="=$hcas"
export NCCL_IB_HCA

case $last in
    2) others='the other rail' ;;
    4) others='most other rails' ;;
    *) fail "2 or 4 rails, not $last" ;;
esac

# packets: prints how many packets mlx5_1 has sent and received.
packets() { echo $(($(counted 1 sent_pkts) + $(counted 1 rcvd_pkts))); }
has_moved() { [ "$(packets)" -ge "$1" ]; }
now() { cut -d . -f 1 /proc/uptime; }
# has_passed SECONDS: whether they have passed since `start`.
has_passed() { [ $(($(now) - start)) -ge "$1" ]; }

# Few messages at a time, so that the time that each takes decides how many packets move.
for rail in $(seq "$last"); do traffic "$rail" --tx-depth 4; done
watch host pod
echo '--- the rails move about as much'
first=$(packets)
start=$(now)
await 'eight looks' has_passed $((8 * interval))
echo "mlx5_1 moves $((($(packets) - first) / (8 * interval))) packets each second"

echo '--- one of them falls behind'
first=$(packets)
# The timeout of a queue pair is longer.
start=$(now)
tc qdisc change dev "eth$last" root netem limit 10000 delay 500ms
# A million packets are the least that the others have to move.
await_limit=900 await 'enough packets' has_moved $((first + (1 << 20)))
echo "mlx5_1 has moved a million packets in $(($(now) - start)) s"
await_limit=900 said 'a rail falls behind' \
    "^rdma-init: note: .*UTC: mlx5_$last has moved [0-9]* packets in .*, and $others [0-9]* packets\( each\)*, after " host pod

echo '--- it is back'
tc qdisc change dev "eth$last" root netem limit 10000
said 'it is back' "mlx5_$last moves about as much as the other rails again, after " host pod
# shellcheck disable=SC2046
no_traffic $(seq "$last")
end
for place in host pod; do
    expect "no other line ($place)" "$(grep -c '^rdma-init: \(warning\|note\): ' "/run/$place")" 2
    cat "/run/$place"
done
