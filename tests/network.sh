#!/bin/sh
# Runs a command in a network of its own, as root: lo, and eth0 with an address and the default route. Most tests read the
# interfaces of the machine, where those of other tests' containers come and go.
#
#     tests/network.sh COMMAND...
set -eu

[ "$(id -u)" = 0 ] || exec "$@"
# shellcheck disable=SC2016
exec unshare --net --mount sh -euc '
    # /sys shows the interfaces of the namespace in which it was mounted.
    groups=$(mktemp -d)
    mount --rbind /sys/fs/cgroup "$groups"
    mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
    mount --move "$groups" /sys/fs/cgroup
    rmdir "$groups"
    ip link set lo up
    # Programs that measure it for a time would take whole processors. The queue holds more than all sockets.
    tc qdisc add dev lo root tbf rate 1gbit burst 1mb limit 256mb 2>/dev/null || :
    ip link add eth0 type dummy 2>/dev/null || ip link add eth0 type ifb
    ip link set eth0 up
    ip address add 192.0.2.2/24 dev eth0
    ip route add default via 192.0.2.1
    exec "$@"' network "$@"
