#!/bin/sh
# Tests whether the virtual machine has what the tests need, and whether it is the named machine.
#   smoke.sh MACHINE
set -eu
. tests/vm/lib.sh

case $1 in
    *-*k) page=${1#*-} page=$((${page%k} * 1024)) ;;
    *) page=4096 ;;
esac
expect 'architecture' "$(uname -m)" "${1%%-*}"
expect 'bytes of a page' "$(getconf PAGE_SIZE)" $page

rxe mlx5_1 eth1 25.11.128.2/27
container_netns pod eth1 net1 25.11.128.9/27

echo 'GID table, seen by the host:'
gid_table mlx5_1
echo 'GID table, seen by the container:'
in_container pod sh -c '. tests/vm/lib.sh; gid_table mlx5_1'

host=$(gid_slots mlx5_1 25.11.128.2)
container=$(gid_slots mlx5_1 25.11.128.9)
expect "one slot for the host's address" "$(echo "$host" | wc -w)" 1
expect "one slot for the container's address" "$(echo "$container" | wc -w)" 1
[ "$host" != "$container" ] || fail "both addresses are in slot $host"
echo "ok: host in slot $host, container in slot $container"

attrs=/sys/class/infiniband/mlx5_1/ports/1/gid_attrs
expect "type of the container's slot" "$(cat $attrs/types/"$container")" 'RoCE v2'
expect "link of the container's slot" "$(cat $attrs/ndevs/"$container")" net1
expect 'state of the port' "$(cat /sys/class/infiniband/mlx5_1/ports/1/state)" '4: ACTIVE'
expect 'links of the host' "$(cd /sys/class/net && echo *)" 'eth1 lo'
expect 'verbs device' "$(stat -c %F /dev/infiniband/uverbs0)" 'character special file'

# shellcheck disable=SC2016
expect 'PID in the container' "$(in_container pod sh -c 'echo $$')" 1
expect 'processes in the container' "$(in_container pod sh -c 'echo /proc/[0-9]*')" /proc/1
expect 'links in the container' "$(in_container pod ls /sys/class/net | sort | xargs)" 'lo net1'
expect 'devices in the container' "$(in_container pod ls /sys/class/infiniband)" mlx5_1
# busybox does not have these options.
expect 'address in the container' \
    "$(in_container pod ip -brief -4 addr show net1 | awk '{ print $3 }')" 25.11.128.9/27
expect "status of the container's program" "$(in_container pod sh -c 'exit 7' || echo $?)" 7
expect 'IPv6 address as a GID' "$(gid_of fd00::a:2)" fd00:0000:0000:0000:0000:0000:000a:0002

in_container pod sh -c 'trap "exit 5" TERM; echo ready >/run/ready; sleep 1000 & wait' &
running=$!
await 'program in the container' test -e /run/ready
kill "$(container_pid pod)"
status=0
wait $running || status=$?
expect 'status after a signal' $status 5
