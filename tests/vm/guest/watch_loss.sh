#!/bin/sh
# The watcher beside a job whose data moves over two rails, in the network namespace of the devices and in one that
# shares them: packets that are lost, a receiver that is not ready, and queue pairs that fail each give their line in
# both, and no other line comes.
#   watch_loss.sh BINARY [few_retries.so]      without it, no queue pair fails
set -eu
. tests/vm/lib.sh
. tests/vm/watchers.sh
. tests/vm/wires.sh
init=$1
interval=5

wire 1
wire 2
container_netns pod eth1 net1 25.11.128.9/27
container_netns pod eth2 net2 25.11.128.41/27
export NCCL_IB_HCA='=mlx5_1,mlx5_2'

# loses RAIL PERCENT: so many of the packets that mlx5_RAIL sends are lost. The queue has to be there before the data
# moves, because the kernel may fail to send while it replaces one.
loses() { tc qdisc change dev "eth$1" root netem loss "$2%"; }
for rail in 1 2; do tc qdisc add dev eth$rail root netem; done

# until_counted RAIL COUNTER COMMAND...: runs it, until that counter, which was 0, rises.
until_counted() {
    fault=$2
    expect "$fault of mlx5_$1" "$(counted "$1" "$fault")" 0
    faulty=$1
    shift 2
    "$@"
    await "$fault" counts "$faulty" "$fault" 0
}

# counts RAIL COUNTER COUNT: whether it is more than that.
counts() { [ "$(counted "$1" "$2")" -gt "$3" ]; }

# told LINE RAIL COUNTER: both watchers say the line of the last event; TIME and N are any. Shows what the kernel counts.
told() {
    said "$3" "^rdma-init: $(echo "$1" | sed 's/: /: .*UTC: /; s/TIME/[^:]*/; s/by N/by [0-9]*/')" host pod
    echo "ok: $3 of mlx5_$2 is $(counted "$2" "$3")"
}

# alone LINE: they say nothing else. The note comes at each look that finds so many.
alone() {
    no_traffic 1 2
    end
    for place in host pod; do
        # What the peer has missed, it says as well.
        sed -i 's/, rcvd_seq_err rose by [0-9]*//; s/: rcvd_seq_err rose/: completer_retry_err rose/' "/run/$place"
        sed -i 's/ in [0-9][^:]*: mlx/ in TIME: mlx/; s/ rose by [0-9]*\.$/ rose by N./' "/run/$place"
        lines 'no other line' $place "$1" uniq
    done
}

echo '--- packets are lost'
line='note: Packets were lost or sent again in TIME: mlx5_1: completer_retry_err rose by N.'
# 67 ms, for many packets that are sent again.
traffic 1 --qp-timeout 14
traffic 2
watch host pod
loses 1 2
told "$line" 1 completer_retry_err
loses 1 0
alone "$line"

echo '--- a receiver is not ready'
line='note: Packets were lost or sent again in TIME: mlx5_2: rcvd_rnr_err rose by N.'
traffic 1
mover=ib_send_bw traffic 2
watch host pod
# shellcheck disable=SC2154
kill -STOP "$mover_peer_2"
told "$line" 2 rcvd_rnr_err
kill -CONT "$mover_peer_2"
alone "$line"

few_retries=${2:-}
[ -n "$few_retries" ] || exit 0
[ -e "$few_retries" ] || fail "there is no $few_retries"
# 268 ms, because an emulated peer may be late with its answer.
few_retries() { LD_PRELOAD=$few_retries traffic 2 --qp-timeout 16; }

echo '--- a queue pair fails because all packets are lost'
line="warning: Queue pairs failed in TIME: mlx5_2: 1 without an answer from the peer (error 12 in NCCL's log)."
traffic 1
few_retries
watch host pod
until_counted 2 retry_exceeded_err loses 2 100
told "$line" 2 retry_exceeded_err
loses 2 0
alone "$line"
for place in host pod; do
    grep -q '^rdma-init: mlx5_2 sent .*1 queue pair failed without an answer from the peer' /run/$place || fail "$(cat /run/$place)"
done
echo 'ok: it is in the account'

echo '--- a queue pair fails because the receiver is not ready'
line="warning: Queue pairs failed in TIME: mlx5_2: 1 because the peer was not ready (error 13 in NCCL's log)."
traffic 1
mover=ib_send_bw few_retries
watch host pod
until_counted 2 retry_rnr_exceeded_err kill -STOP "$mover_peer_2"
told "$line" 2 retry_rnr_exceeded_err
kill -CONT "$mover_peer_2"
alone "$line"
