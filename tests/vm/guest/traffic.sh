#!/bin/sh
# Tests the report of what a job has moved, at the end of the job, and the rates while it runs, on two
# soft-RoCE devices in the host's network namespace. ib_write_bw is part of perftest.
#   traffic.sh BINARY
set -eu
. tests/vm/lib.sh
init=$1

rxe mlx5_1 eth1 25.11.128.2/27
rxe mlx5_2 eth2 25.11.128.34/27

# job OPTION... -- COMMAND...: runs under an init; the report is in /run/out.
job() {
    unshare --pid --fork --mount-proc "$init" "$@" 2>/run/out || fail "exit code $?: $(cat /run/out)"
    cat /run/out
}

has_not() {
    ! grep -q -- "$2" /run/out || fail "$1: there is $2"
    echo "ok: $1"
}

echo '--- a job that moves nothing'
# A job that ends in less than this time, or than a minute, may not have begun.
job -- true
has 'it has a line' '^rdma-init: 2 rails (mlx5_1, mlx5_2) moved no data, without an error\.$'
has_not 'it is not warned of' 'RDMA was planned'
begun='--watch-after 1ms'
# A job that is not known to have several nodes has a note.
export NNODES=2 NODE_RANK=0
# shellcheck disable=SC2086
job $begun -- true
has_not 'it is told once' 'without an error'
has 'it is warned of' '^rdma-init: warning: RDMA was planned, but no data has moved over mlx5_1, mlx5_2 in '
# shellcheck disable=SC2086
job $begun --log-level warn -- true
has_not 'less is told' 'without an error'
has 'but the warning' 'no data has moved'
unset NNODES NODE_RANK
job --log-level error -- true
expect 'nothing is told' "$(cat /run/out)" ''
# shellcheck disable=SC2086
job $begun --log-format json -- true
has 'as JSON' '"event":"account".*"rails":\[{"hca":"mlx5_1".*"sent_packets":0'
has 'with the warning' '"id":"no-traffic"'
job --profile none --set NCCL_IB_DISABLE=1 -- true
has_not 'without RDMA there is nothing to tell' 'without an error'

echo '--- a self-test'
job -- "$init" self-test --only verbs-loopback --each 5m >/run/self_test
has 'it shows' '^rdma-init: 2 rails (mlx5_1, mlx5_2) sent [1-9][0-9]* packets and received [1-9].* packets, .* % each, with\(out an error\| no more errors than usual\)\.$'
has_not 'no warning' 'no data has moved'
# Traffic before the job does not belong to it.
# shellcheck disable=SC2086
job $begun --self-test warn --prepare-timeout 60s -- true
has 'it is not counted' 'no data has moved over mlx5_1, mlx5_2 in '
code=0
"$init" --supervise -- "$init" self-test --only verbs-loopback --each 5m >/run/self_test 2>/run/out || code=$?
expect 'under --supervise' "$code" 0
has 'the same' '^rdma-init: 2 rails (mlx5_1, mlx5_2) sent [1-9]'

echo '--- the rates'
"$init" stat >/run/idle
cat /run/idle
expect 'idle' "$(awk '/^mlx5_1:1/ { print $3, $5 }' /run/idle)" '0 0'
# Sends to itself, because two soft-RoCE devices of one host cannot reach each other. --CPU-freq skips the
# check of the CPU clock: on a busy machine, ib_write_bw cannot determine it, and gives up.
bandwidth="ib_write_bw --CPU-freq --ib-dev mlx5_1 --gid-index 1 --size 4096"
# serve OPTION...: starts the other end, and waits until it is ready.
serve() {
    $bandwidth "$@" >/run/server 2>&1 &
    # Port 18515.
    await 'server' grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6
}
received=/sys/class/infiniband/mlx5_1/ports/1/hw_counters/rcvd_pkts
before=$(cat $received)
serve --duration 5 --run_infinitely
$bandwidth --duration 5 --run_infinitely 25.11.128.2 >/run/client 2>&1 &
await 'traffic' sh -c "[ \$(cat $received) -gt $((before + 1000)) ]"
"$init" stat --watch 500ms --json >/run/watched &
watch=$!
# shellcheck disable=SC2016
await 'three looks' sh -c '[ $(wc -l </run/watched) -ge 6 ]'
kill "$watch"
pkill ib_write_bw || fail "the traffic has ended: $(cat /run/server /run/client)"
cat /run/watched
moved='"hca":"mlx5_1".*"sent_bytes":null,"sent_packets":[1-9].*"received_packets":[1-9]'
grep -q "$moved" /run/watched || fail 'no rates of the one in use'
echo 'ok: rates of the one in use'
expect 'and none of the other' "$(grep -c '"hca":"mlx5_2".*"sent_packets":0' /run/watched)" "$(grep -c mlx5_2 /run/watched)"
wait

echo '--- in a network namespace that shares the devices'
# pod COMMAND...: runs in a container with a /sys of its own network namespace.
pod() { unshare --net --mount sh -ec '/bin/busybox mount -t sysfs sysfs /sys; exec "$@"' sh "$@"; }
[ -z "$(pod /bin/busybox find /sys/class/infiniband/mlx5_1/ports/1/ -name '*counters')" ] || fail 'it has the counters in /sys'
pod "$init" stat --json >/run/out
cat /run/out
has 'by RDMA netlink' '"hca":"mlx5_1".*"sent_packets":0,"received_bytes":null,"received_packets":0'
pod setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all "$init" stat --format openmetrics >/run/out
has 'without privilege' '^node_infiniband_port_packets_transmitted_total{device="mlx5_1",port="1"} [1-9]'
has 'whole' '^# EOF'

echo '--- the metrics'
# kernels HCA: prints the metrics that its counters in the kernel are.
kernels() {
    (
        cd "/sys/class/infiniband/$1/ports/1/hw_counters"
        port="device=\"$1\",port=\"1\""
        for counter in *; do
            name=
            case $counter in
                # The time between two readings of the device, which is not a count.
                lifespan) continue ;;
                sent_pkts) name=port_packets_transmitted ;;
                rcvd_pkts) name=port_packets_received ;;
                link_downed) name=link_downed ;;
                duplicate_request) name=duplicate_requests_packets ;;
            esac
            [ -z "$name" ] || echo "node_infiniband_${name}_total{$port} $(cat "$counter")"
            case $counter in
                link_downed|duplicate_request) ;;
                *) echo "rdma_init_driver_value{$port,counter=\"$counter\"} $(cat "$counter")" ;;
            esac
        done | LC_ALL=C sort
    )
}
ours() { sed -n '/_total{\|rdma_init_driver_value{/p' | grep "device=\"$1\"" | LC_ALL=C sort; }
for hca in mlx5_1 mlx5_2; do
    expect "those of $hca are what the kernel counts" "$("$init" stat --format openmetrics | ours $hca)" "$(kernels $hca)"
    expect 'and in a namespace that shares it' "$(pod "$init" stat --format openmetrics | ours $hca)" "$(kernels $hca)"
done
[ "$(kernels mlx5_1 | wc -l)" -ge 10 ] || fail "few counters: $(kernels mlx5_1)"

echo '--- ib_write_bw as the job'
serve --iters 50
# shellcheck disable=SC2086
job -- $bandwidth --iters 50 25.11.128.2 >/run/client
has 'what it has moved, over one HCA alone' '^rdma-init: mlx5_1 sent [1-9][0-9]* packets and received [1-9][0-9]* packets, 100 %, with\(out an error\| no more errors than usual\); mlx5_2 moved nothing\.$'
has_not 'no warning' 'no data has moved'

echo '--- a link that goes down and comes up again'
job -- sh -c 'ip link set eth2 down; ip link set eth2 up'
has_not 'no finding repeats the account' 'The link went down within'
has 'it is in the account' '^rdma-init: mlx5_2 sent .*: its link went down 1 time\(, last .* before the end\)*\.$'
has 'and the other was sound' '^rdma-init: mlx5_1 .*, with\(out an error\| no more errors than usual\)\.$'
code=0
unshare --pid --fork --mount-proc "$init" --fabric-exit-code 42 -- sh -c 'ip link set eth2 down; ip link set eth2 up; exit 3' 2>/run/out || code=$?
cat /run/out
expect 'a code of its own' "$code" 42
has 'and why' '^rdma-init: sh ended with exit code 3 (turned into 42, because the fabric broke while it ran) after '
code=0
unshare --pid --fork --mount-proc "$init" --fabric-exit-code 42 -- sh -c 'exit 3' 2>/run/out || code=$?
expect 'nothing broke' "$code" 3
job -- true
has_not 'it was told once' 'went down'
job -- sh -c 'ip link set eth2 down'
has 'it is down at the end' '^rdma-init: mlx5_2 sent .*: it is no longer active; '

echo '--- a watcher beside the job'
ip link set eth2 up
await 'mlx5_2 is active again' grep -q ACTIVE /sys/class/infiniband/mlx5_2/ports/1/state
# With the metrics, which each look writes anew, and what status says meanwhile.
cat >/run/measured_job <<J
set -eu
. tests/vm/lib.sh
ip link set eth2 up
await metrics grep -q link_downed /run/rdma.prom
"$init" status >/run/status || true
is_new() { [ "\$(stat -c %i /run/rdma.prom)" != "\$file" ]; }
for look in 1 2 3; do
    file=\$(stat -c %i /run/rdma.prom)
    await 'next look' is_new
done
J
job --watch warn --watch-interval 100ms --watch-metrics /run/rdma.prom -- sh /run/measured_job
grep -q 'with\(out an error\| no more errors than usual\)' /run/status || fail "no account in the status: $(cat /run/status)"
echo 'ok: an account in the status'
grep -q '^node_infiniband_port_packets_transmitted_total{device="mlx5_2",port="1"} ' /run/rdma.prom || fail "$(cat /run/rdma.prom)"
echo 'ok: metrics'
has_not 'a sound job is silent' 'active\|gone\|went down\|in the first'
# The command exits with 7 once it has found and killed the other rdma-init process that is not PID 1.
cat >/run/killer <<'J'
while :; do
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        [ "$pid" != 1 ] && [ "$(readlink "$process/exe")" = "$(readlink /proc/1/exe)" ] && kill -9 "$pid" && exit 7
    done
    sleep 0.1
done
J
code=0
unshare --pid --fork --mount-proc "$init" --watch warn -- sh /run/killer 2>/run/out || code=$?
expect 'the job does not notice that its watcher is killed' "$code" 7

echo '--- memory that runs out, with cgroup v2'
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
mkdir /sys/fs/cgroup/job
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
echo 64M >/sys/fs/cgroup/job/memory.max
# shellcheck disable=SC2016
in_cgroup='echo $$ >/sys/fs/cgroup/job/cgroup.procs; exec unshare --cgroup --mount --pid --fork --mount-proc sh -c "$1" "$0"'
# shellcheck disable=SC2016
in_namespace='busybox umount /sys/fs/cgroup; busybox mount -t cgroup2 none /sys/fs/cgroup; exec "$0" -- sh -c "head -c 200000000 /dev/zero | tail -c 200000000; exit 3"'
code=0
RDMA_INIT_TERMINATION_LOG=/run/termination sh -c "$in_cgroup" "$init" "$in_namespace" >/dev/null 2>/run/out || code=$?
expect 'the code is that of the command' "$code" 3
has 'the end line has it' 'sh ended with exit code 3 .*Memory ran out meanwhile: the kernel killed 1 process of'
cp /run/termination /run/out
has 'and the file for Kubernetes' '^rdma-init: sh ended with exit code 3 .*Memory ran out meanwhile'
