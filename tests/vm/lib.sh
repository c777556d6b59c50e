# Functions for scripts that run in the virtual machine of run.sh:
#
#   . tests/vm/lib.sh
# shellcheck shell=sh

# fail MESSAGE...: prints the message and exits.
fail() {
    echo "FAIL: $*"
    exit 1
}

# expect NAME GOT WANTED: fails unless both are equal.
expect() {
    [ "$2" = "$3" ] || fail "$1
  got:    $2
  wanted: $3"
    echo "ok: $1"
}

# has NAME TEXT: fails unless the text is in /run/out.
has() {
    grep -q -- "$2" /run/out || fail "$1: no $2"
    echo "ok: $1"
}

# await NAME COMMAND...: waits until COMMAND succeeds. The limit only keeps a script from waiting forever: an emulated
# machine on a busy host may take any time for anything. It is for what the kernel does at its own pace without an
# event, such as filling a GID table. Each look starts programs, which keeps an emulated processor busy: after the first
# ones, they are rare.
await() {
    await_what=$1
    shift
    read -r now _ </proc/uptime
    await_end=$((${now%.*} + ${await_limit:-300}))
    await_pauses='0.05 0.05 0.1 0.1 0.2 0.2 0.4'
    until "$@"; do
        read -r now _ </proc/uptime
        [ "${now%.*}" -lt $await_end ] || fail "no $await_what within ${await_limit:-300} s"
        sleep "${await_pauses%% *}"
        await_pauses=${await_pauses#* }
    done
}

# gid_of ADDRESS: prints an IPv4 or IPv6 address in the form of GID tables.
gid_of() {
    case $1 in
        *:*) ;;
        *)
            (
                IFS=.
                # shellcheck disable=SC2046,SC2086
                printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' $1
            )
            return
            ;;
    esac
    echo "$1" | awk -F: '{
        # "::" at either end makes two empty fields.
        for (i = 1; i <= NF; i++) {
            if ($i != "") word[n++] = $i
            else if (!gap++) at = n + 0
        }
        for (i = 0; i < 8; i++) {
            inside = gap && i >= at && i < at + 8 - n
            w = "000" (inside ? "0" : tolower(word[j++ + 0]))
            printf "%s%s", substr(w, length(w) - 3), i < 7 ? ":" : "\n"
        }
    }'
}

# gid_slots HCA ADDRESS: prints the indexes of the GID entries with this address, one per line. Here and
# below, only the first hundred entries are read, because reading a thousand takes seconds under emulation,
# and the kernel fills the lowest free one.
gid_slots() {
    (
        cd "/sys/class/infiniband/$1/ports/1/gids" || exit 1
        grep -lx "$(gid_of "$2")" [0-9] [0-9][0-9]
    )
}

# gid_table HCA: prints INDEX GID TYPE NETDEV of each used entry.
gid_table() {
    (
        cd "/sys/class/infiniband/$1/ports/1" || exit 1
        # An empty entry is all zeros here, and an error in gid_attrs.
        (cd gids && grep -vHx '[0:]*' [0-9] [0-9][0-9]) |
            while IFS=: read -r slot gid; do
                read -r type <"gid_attrs/types/$slot" || type=-
                read -r netdev <"gid_attrs/ndevs/$slot" || netdev=-
                echo "$slot $gid $type $netdev"
            done
    )
}

# hca_on NETDEV: prints the name of the RDMA device on top of it, if there is one.
hca_on() {
    rdma link show | sed -n "s|^link \([^/]*\)/1 .* netdev $1 *\$|\1|p"
}

# has_gids HCA ADDRESS...: returns whether all of them are in its GID table.
has_gids() {
    (
        cd "/sys/class/infiniband/$1/ports/1/gids" || exit 1
        shift
        for address; do
            grep -qx "$(gid_of "$address")" [0-9] [0-9][0-9] || exit 1
        done
    )
}

# IPv6 addresses become GIDs only after duplicate address detection, a second or two later, and would change
# the table during a test. This disables the detection for future links of a network namespace; COMMAND...
# enters the namespace.
no_duplicate_search() {
    "$@" busybox sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'
}

# addresses NETDEV [IP-OPTION...]: prints its addresses, one per line, including the link-local one.
addresses() {
    netdev=$1
    shift
    ip "$@" -o addr show dev "$netdev" | awk '{ sub("/.*", "", $4); print $4 }'
}

# rxe NAME NETDEV ADDRESS/PREFIX: creates the RDMA device NAME (soft-RoCE) on NETDEV, which becomes a dummy
# link unless it exists. Returns once the link's addresses are in the device's GID table.
rxe() {
    no_duplicate_search
    [ -e "/sys/class/net/$2" ] || ip link add "$2" type dummy
    printf '%s\n' "addr add $3 dev $2" "link set $2 up" | ip -batch -
    rdma link add "$1" type rxe netdev "$2"
    # shellcheck disable=SC2046
    await "GIDs of $2 in $1" has_gids "$1" $(addresses "$2")
}

# container_netns NAME PARENT IFNAME ADDRESS/PREFIX: creates the network namespace NAME with a macvlan of
# PARENT in it, as network plugins do. Another call with the same NAME adds another link to the namespace.
# Returns once the link's addresses are in the GID table of the RDMA device on PARENT, if there is one.
container_netns() {
    [ -e "/run/netns/$1" ] || ip netns add "$1"
    # IFNAME may already exist in the caller's namespace.
    printf '%s\n' "link add link $2 name container0 type macvlan mode bridge" \
        "link set container0 netns $1" | ip -batch -
    no_duplicate_search nsenter --net="/run/netns/$1"
    printf '%s\n' "link set lo up" "link set container0 name $3" \
        "addr add $4 dev $3" "link set $3 up" | ip -netns "$1" -batch -
    hca=$(hca_on "$2")
    # shellcheck disable=SC2046
    [ -z "$hca" ] || await "GIDs of $3 in $hca" \
        has_gids "$hca" $(addresses "$3" -netns "$1")
}

# overlay_netns NAME NUMBER: creates the network namespace NAME with eth0 of an overlay network alone, 10.244.NUMBER.2/24.
# It reaches other such namespaces through this one, and has no route to any other network.
overlay_netns() {
    ip netns add "$1"
    no_duplicate_search nsenter --net="/run/netns/$1"
    echo 1 >/proc/sys/net/ipv4/ip_forward
    printf '%s\n' "link add overlay$2 type veth peer name eth0 netns $1" \
        "addr add 10.244.$2.1/24 dev overlay$2" "link set overlay$2 up" | ip -batch -
    printf '%s\n' "link set lo up" "addr add 10.244.$2.2/24 dev eth0" "link set eth0 up" \
        "route add 10.244.0.0/16 via 10.244.$2.1" | ip -netns "$1" -batch -
}

# pod_with_a_rail: creates a host with the HCA mlx5_1, and with mlx5_0 as its primary NIC, and the container
# `pod` with a link of each. Sets `host` and `own`, the GID indexes of the host's and of the container's
# address on mlx5_1. A program that uses the first matching entry gets the host's.
pod_with_a_rail() {
    rxe mlx5_1 eth1 25.11.128.2/27
    # This one has the default route.
    rxe mlx5_0 eth0 10.0.60.3/24
    container_netns pod eth1 net1 25.11.128.9/27
    container_netns pod eth0 eth0 10.0.60.77/24
    ip -netns pod route add default via 10.0.60.1 dev eth0
    host=$(gid_slots mlx5_1 25.11.128.2)
    own=$(gid_slots mlx5_1 25.11.128.9)
    [ "$host" -lt "$own" ] || fail "the host's slot $host is not before the container's, $own"
}

# in_container NETNS COMMAND...: runs COMMAND as PID 1 of a PID namespace with separate mounts: a /proc for
# the PID namespace and a /sys for the network namespace, read-only as in container runtimes. COMMAND is a
# program, not a function. Returns its exit status. To signal it, use the PID from container_pid.
in_container() {
    container=$1
    # Without a path, busybox would run its own applet instead of the program.
    program=$(command -v "$2") || fail "in_container: no program $2"
    case $program in
        */*) ;;
        *) program=$(which "$2") || fail "in_container: $2 is no program" ;;
    esac
    shift 2
    set -- "$program" "$@"
    # busybox, because each program with a loader costs a tenth of a second here. It is called by its path,
    # because its shell would otherwise run the applets within itself, which fails. Lazy unmounts also
    # remove the mounts below.
    # shellcheck disable=SC2016
    nsenter --net="/run/netns/$container" \
        unshare --mount --ipc --pid --fork --kill-child busybox sh -c '
            mask=nosuid,nodev,noexec
            /bin/busybox umount -l /sys &&
            /bin/busybox mount -t sysfs -o ro,$mask sysfs /sys &&
            /bin/busybox mount -t cgroup2 -o ro,$mask cgroup2 /sys/fs/cgroup &&
            /bin/busybox umount -l /proc &&
            /bin/busybox mount -t proc -o $mask proc /proc || exit 125
            exec "$@"' in_container "$@"
}

# container_pid NETNS: prints the PID, as seen from outside, of the PID 1 that in_container runs in this
# network namespace.
container_pid() {
    for candidate in $(ip netns pids "$1"); do
        if [ "$(awk '$1 == "NSpid:" { print $3 }' "/proc/$candidate/status" 2>/dev/null)" = 1 ]; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# nics: the NICs of this machine become eth0, eth1, ...
nics() {
    modprobe virtio_net
    driver=/sys/bus/virtio/drivers/virtio_net
    for nic in /sys/bus/virtio/devices/*; do
        # The ID of a network device.
        [ "$(cat "$nic/device")" != 0x0001 ] || [ -e "$driver/${nic##*/}" ] || echo "${nic##*/}" >$driver/bind
    done
}

# rails NUMBER: makes this machine the one with that number in a group of machines with two soft-RoCE rails
# between them, mlx5_1 on eth1 and mlx5_2 on eth2, and eth0 for TCP. The first one is called node1.
rails() {
    nics
    ip addr add "10.9.0.$1/24" dev eth0
    ip link set eth0 up
    rxe mlx5_1 eth1 "$(rail_address 1 "$1")/27"
    rxe mlx5_2 eth2 "$(rail_address 2 "$1")/27"
    export NCCL_IB_HCA='=mlx5_1,mlx5_2'
    echo '10.9.0.1 node1' >>/etc/hosts
}

# rail_address RAIL NUMBER: prints the address of that machine on this rail.
rail_address() { echo "25.11.128.$((($1 - 1) * 32 + $2))"; }

# lose RAIL NUMBER...: drops what this machine sends to those machines over this rail.
lose() {
    lost_rail=$1
    shift
    for other; do
        ip neigh replace "$(rail_address "$lost_rail" "$other")" lladdr 02:00:00:00:00:99 \
            dev "eth$lost_rail" nud permanent
    done
}

# find_again RAIL NUMBER...: undoes this.
find_again() {
    lost_rail=$1
    shift
    for other; do
        ip neigh del "$(rail_address "$lost_rail" "$other")" dev "eth$lost_rail"
    done
}

# other_family NUMBER: replaces the IPv4 addresses of both rails of this machine with IPv6 addresses.
other_family() {
    for rail in 1 2; do
        ip addr flush dev "eth$rail" scope global
        ip addr add "fd25:11::$rail:$1/112" dev "eth$rail" nodad
        await 'GID' has_gids "mlx5_$rail" "fd25:11::$rail:$1"
    done
}
