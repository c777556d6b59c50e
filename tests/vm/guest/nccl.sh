#!/bin/sh
# Reports what NCCL does in containers with soft-RoCE, both alone and started by rdma-init, and what
# rdma-init predicts for both. tests/nccl/soft_roce.rs judges the output.
#   nccl.sh BINARY DRIVER RELEASES
# RELEASES is a file with a line VERSION FOLDER SYMBOL=OFFSET... for each NCCL.
#
# The output consists of sections below a line `@ HOST VERSION WHAT`. The NCCL logs in them have a known
# length, so nothing in a log can be mistaken for such a line.
set -eu
. tests/vm/lib.sh
init=$1
driver=$2
releases=$3

printf '%s\n' 'ask bootstrap' 'ask ib' run >/run/ask
# For hosts on which only the choice of HCAs matters, because each run takes a second or two.
sed -n '1p;$p' "$releases" >/run/oldest-and-newest
mkdir /run/told

# tell HOST NETNS VERSION FOLDER SYMBOL...: runs in one container, whose image has the NCCL of this
# directory, with the user's variables. rdma-init comes last, as PID 1 itself. Emulation is slow, so its
# preparation gets more time. The containers share the /etc of the machine, which must stay unchanged.
tell() {
    told="$1 $3"
    netns=$2
    folder=$4
    shift 4
    # shellcheck disable=SC2016,SC2086
    in_container "$netns" env RDMA_INIT_CONFIG=/dev/null RDMA_INIT_PREPARE_TIMEOUT=60s \
        RDMA_INIT_STATE_DIR= RDMA_INIT_WRITE_NCCL_CONF=false \
        LD_LIBRARY_PATH="$folder" $user busybox sh -c '
            init=$1 driver=$2 told=$3
            shift 3
            echo "@ $told plain"
            "$driver" started libnccl.so.2 "$@" </run/ask
            echo "@ $told plain-plan"
            "$init" plan --profile none --json
            echo "@ $told under-plan"
            "$init" plan --json
            echo "@ $told under"
            exec "$init" -- "$driver" started libnccl.so.2 "$@" </run/ask
        ' tell "$init" "$driver" "$told" "$@"
}

# each RELEASES HOST NETNS: runs as many at the same time as there are CPUs.
each() {
    chosen=$1
    shift
    count=0
    while read -r version folder symbols; do
        # shellcheck disable=SC2086
        tell "$1" "$2" "$version" "$folder" $symbols >"/run/told/$version" 2>"/run/told/$version.report" &
        count=$((count + 1))
        [ $((count % $(nproc))) != 0 ] || wait
    done <"$chosen"
    wait
    while read -r version _; do
        cat "/run/told/$version"
        echo "@ $1 $version report"
        cat "/run/told/$version.report"
    done <"$chosen"
}

# right HOST BOOTSTRAP-INTERFACE BOOTSTRAP-ADDRESS [HCA ADDRESS]...: prints what a job in a container must
# use, according to the kernel's own tables.
right() {
    echo "@ $1 any right"
    echo "bootstrap $2 $3"
    shift 3
    while [ $# -gt 0 ]; do
        echo "$1 $(gid_slots "$1" "$2")"
        shift 2
    done
}

# The third HCA's name starts with the name of the first one.
rxe mlx5_1 eth1 25.11.128.2/27
rxe mlx5_2 eth2 25.11.128.34/27
rxe mlx5_10 eth0 10.0.60.3/24
user=

# In every table, the host's addresses precede the container's.
container_netns same eth1 net1 25.11.128.9/27
container_netns same eth2 net2 25.11.128.41/27
container_netns same eth0 eth0 10.0.60.77/24
ip -netns same route add default via 10.0.60.1 dev eth0
right same eth0 10.0.60.77 mlx5_1 25.11.128.9 mlx5_2 25.11.128.41
each "$releases" same same

# The user's own list matches one more HCA than it seems to.
user=NCCL_IB_HCA=mlx5_1
right list eth0 10.0.60.77 mlx5_1 25.11.128.9 mlx5_10 10.0.60.77
each /run/oldest-and-newest list same
user=

# Another container has made the tables unequal.
container_netns other eth1 net1 25.11.128.10/27
container_netns different eth1 net1 25.12.0.11/27
container_netns different eth2 net2 25.12.0.43/27
container_netns different eth0 eth0 10.0.60.78/24
ip -netns different route add default via 10.0.60.1 dev eth0
right different eth0 10.0.60.78 mlx5_1 25.12.0.11 mlx5_2 25.12.0.43
each "$releases" different different

# The same with IPv6 on the links of the HCAs and of the host.
printf '%s\n' 'addr add fd99::2/64 dev eth1' 'addr add fd99:1::2/64 dev eth2' | ip -batch -
await 'GID of eth1' has_gids mlx5_1 fd99::2
await 'GID of eth2' has_gids mlx5_2 fd99:1::2
container_netns ipv6 eth1 net1 fd25::b/64
container_netns ipv6 eth2 net2 fd25::2b/64
container_netns ipv6 eth0 eth0 10.0.60.79/24
ip -netns ipv6 route add default via 10.0.60.1 dev eth0
right ipv6 eth0 10.0.60.79 mlx5_1 fd25::b mlx5_2 fd25::2b
each "$releases" ipv6 ipv6

# One port is down, and the container did not get the device node of another HCA.
rxe mlx5_3 eth3 25.11.128.66/27
container_netns same eth3 net3 25.11.128.73/27
ip link set eth2 down
await 'port down' grep -q DOWN /sys/class/infiniband/mlx5_2/ports/1/state
mv "/dev/infiniband/$(grep -lx mlx5_3 /sys/class/infiniband_verbs/uverbs*/ibdev | cut -d/ -f5)" /run/node
right broken eth0 10.0.60.77 mlx5_1 25.11.128.9
each /run/oldest-and-newest broken same

# In addition, the user asks for exactly these two.
user=NCCL_IB_HCA==mlx5_2,mlx5_3
right none eth0 10.0.60.77
each /run/oldest-and-newest none same
