#!/bin/sh
# A sound job: data moves over two rails for the whole time, and the watcher, in the network namespace of the devices and
# in one that shares them, says nothing. The account at the end has what the kernel has counted.
#   watch_sound.sh BINARY SECONDS
set -eu
. tests/vm/lib.sh
. tests/vm/watchers.sh
. tests/vm/wires.sh
init=$1
seconds=$2
# The watcher's default.
interval=

wire 1
wire 2
container_netns pod eth1 net1 25.11.128.9/27
container_netns pod eth2 net2 25.11.128.41/27
export NCCL_IB_HCA='=mlx5_1,mlx5_2'

# counts: prints HCA SENT RECEIVED of both rails, in packets; soft-RoCE counts no bytes.
counts() { for rail in 1 2; do echo "mlx5_$rail $(counted $rail sent_pkts) $(counted $rail rcvd_pkts)"; done; }
# arrives RAIL COUNT: whether more packets have come.
arrives() { [ "$(counted "$1" rcvd_pkts)" -gt "$2" ]; }

counts >/run/before
watch host pod --log-format json
for place in host pod; do wc -l <"/run/$place" >"/run/$place.start"; done
for rail in 1 2; do traffic $rail; done
echo "--- $seconds s"
now() { cut -d . -f 1 /proc/uptime; }
looks=0
enough=$(($(now) + seconds))
while [ "$(now)" -lt $enough ]; do
    for rail in 1 2; do
        received=$(counted $rail rcvd_pkts)
        await "data over rail $rail, as all the time" arrives $rail "$received"
    done
    looks=$((looks + 1))
    sleep 1
done
echo "ok: data moved over both rails at each of $looks looks"
no_traffic 1 2
end
counts >/run/after

awk 'NR == FNR { sent[$1] = $2; received[$1] = $3; next }
    { print $1, $2 - sent[$1], $3 - received[$1], "true" }' /run/before /run/after >/run/wanted
cat /run/wanted
for place in host pod; do
    tail -n "+$(($(cat /run/$place.start) + 1))" /run/$place >/run/$place.said
    expect "the account alone ($place)" "$(grep -o '"event":"[a-z]*"' /run/$place.said)" '"event":"account"'
    expect "one line ($place)" "$(wc -l </run/$place.said)" 1
    sed 's/{"hca"/\n&/g' /run/$place.said |
        sed -n 's/^{"hca":"\([^"]*\)".*"sent_packets":\([0-9]*\),.*"received_packets":\([0-9]*\),.*"well":\([a-z]*\),.*/\1 \2 \3 \4/p' >/run/$place.account
    expect "its figures are the kernel's, and all is well ($place)" "$(cat /run/$place.account)" "$(cat /run/wanted)"
done
cat /run/host.said
