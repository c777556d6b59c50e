# Rails with both ends in this machine, and data that moves over them. For scripts that run in the virtual machine of
# run.sh:
#
#   . tests/vm/lib.sh
#   . tests/vm/wires.sh
# shellcheck shell=sh

# wire RAIL: makes the rail of that number: two soft-RoCE devices, mlx5_RAIL on ethRAIL and peer_RAIL on wireRAIL, and a
# link between them that their packets take, as between two machines.
wire() {
    no_duplicate_search
    ip link add "eth$1" type veth peer name "wire$1"
    # Both ends are up before the first device, which counts each time that its link goes down.
    ip link set "eth$1" up
    ip link set "wire$1" up
    # What is for an address of this machine does not leave it otherwise.
    ip rule | grep -q '^32000:' || { ip rule add pref 32000 lookup local && ip rule del pref 0; }
    wire_end "eth$1" "wire$1" "$(rail_address "$1" 2)" "$1"
    wire_end "wire$1" "eth$1" "$(rail_address "$1" 1)" "$1"
    rxe "mlx5_$1" "eth$1" "$(rail_address "$1" 1)/27"
    rxe "peer_$1" "wire$1" "$(rail_address "$1" 2)/27"
}

# wire_end NETDEV OTHER ADDRESS RAIL: what this interface sends to the address of the other one goes there.
wire_end() {
    # A packet from an address of this machine is dropped otherwise, and both interfaces would answer for either address.
    for setting in accept_local=1 rp_filter=0 arp_ignore=1; do
        echo "${setting#*=}" >"/proc/sys/net/ipv4/conf/$1/${setting%=*}"
    done
    ip rule add pref 100 oif "$1" to "$3" lookup $((1000 + $4))
    ip route add "$3" dev "$1" table $((1000 + $4))
    ip neigh replace "$3" lladdr "$(cat "/sys/class/net/$2/address")" dev "$1" nud permanent
}

# mover END RAIL [OPTION...]: this shell becomes ib_write_bw, or another program of perftest in `mover`, at that end
# of the rail: `peer` waits for `mlx5`, which moves the data.
mover() {
    device=$1_$2
    port=$((18600 + $2))
    case $1 in
        mlx5) gid=$(gid_slots "$device" "$(rail_address "$2" 1)") ;;
        peer) gid=$(gid_slots "$device" "$(rail_address "$2" 2)") ;;
    esac
    peer=
    priority=0
    if [ "$1" = mlx5 ]; then
        peer=127.0.0.1
        priority=19
    fi
    [ -z "$mover_quota" ] || limit_mover "$1"
    shift 2
    # --CPU-freq skips the check of the CPU clock: on a busy machine, that cannot be determined.
    exec nice -n $priority "${mover:-ib_write_bw}" --CPU-freq --ib-dev "$device" --port "$port" --gid-index "$gid" \
        --size 4096 --mtu 1024 "$@" $peer
}

# Both ends look for their completions without a pause, and would leave the watchers little of an emulated processor. With
# this time of it for all at one end, in microseconds of each 100,000, they move enough. A receiver is not late to make
# ready what a sender uses: it has its own time, and the sender a lower priority.
mover_quota=20000

# limit_mover END: limits this shell to that time, if the kernel can.
limit_mover() {
    movers=/sys/fs/cgroup/movers_$1
    {
        echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
        mkdir -p "$movers"
        echo "$mover_quota 100000" >"$movers/cpu.max"
        echo 0 >"$movers/cgroup.procs"
    } 2>/dev/null || :
}

# peer_waits RAIL: whether the mover at peer_RAIL waits for the other one.
peer_waits() { grep -q ":$(printf %04X $((18600 + $1))) .* 0A " /proc/net/tcp /proc/net/tcp6; }

# traffic RAIL [OPTION...]: data moves over this rail until `no_traffic`. Returns once it moves.
traffic() {
    rail=$1
    shift
    sent=$(counted "$rail" sent_pkts)
    # 1 s: an emulated peer may be late with its answer, and packets that are sent again for that are lost ones to a watcher.
    set -- "$rail" --duration 10 --run_infinitely --qp-timeout 18 "$@"
    mover peer "$@" >"/run/peer_$rail" 2>&1 &
    eval "mover_peer_$rail=$!"
    await "the peer of rail $rail" peer_waits "$rail"
    mover mlx5 "$@" >"/run/mlx5_$rail" 2>&1 &
    eval "mover_mlx5_$rail=$!"
    await "traffic over rail $rail" has_sent "$rail" $((sent + 100))
}

has_sent() { [ "$(counted "$1" sent_pkts)" -gt "$2" ]; }

# no_traffic RAIL...: both ends of these rails end, unless they have already.
no_traffic() {
    for rail; do
        for end in mlx5 peer; do
            eval "pid=\$mover_${end}_$rail"
            # shellcheck disable=SC2154
            kill "$pid" 2>/dev/null || :
            wait "$pid" || :
        done
    done
}

# counted RAIL COUNTER: prints what the kernel counts at mlx5_RAIL.
counted() { cat "/sys/class/infiniband/mlx5_$1/ports/1/hw_counters/$2"; }
