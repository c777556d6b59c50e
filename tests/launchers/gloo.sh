#!/bin/sh
# Runs two nodes in network namespaces, each with an /etc/hosts that maps the node's name to 127.0.1.1, as
# Debian does, and a job of two ranks over Gloo.
#   gloo.sh BINARY PYTHON SECONDS OPTION...     the options are those of BINARY
# The output of the ranks is in two files "node-N" in the working directory. The exit status is that of the
# last rank that failed.
set -eu
init=$1
python=$2
seconds=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd -P)
one=rdma-init-gloo-$$-1
two=rdma-init-gloo-$$-2
trap 'ip netns del $one 2>/dev/null || :; ip netns del $two 2>/dev/null || :' EXIT
ip netns add "$one"
ip netns add "$two"
ip link add eth0 netns "$one" type veth peer name eth0 netns "$two"
for node in 1 2; do
    netns=rdma-init-gloo-$$-$node
    printf '%s\n' 'link set lo up' "addr add 10.77.0.$node/24 dev eth0" 'link set eth0 up' \
        'route add default via 10.77.0.254 dev eth0' | ip -netns "$netns" -batch -
    printf '127.0.0.1 localhost\n127.0.1.1 node-%s\n' "$node" >"hosts-$node"
done

# node NUMBER OPTION...: runs its rank as the command of PID 1. The machine's own /etc stays unchanged.
node() {
    number=$1
    shift
    # shellcheck disable=SC2016
    ip netns exec "rdma-init-gloo-$$-$number" unshare --uts --mount --pid --fork --kill-child \
        env MASTER_ADDR=10.77.0.1 MASTER_PORT=29577 WORLD_SIZE=2 RANK=$((number - 1)) \
        RDMA_INIT_CONFIG=/dev/null RDMA_INIT_STATE_DIR= RDMA_INIT_WRITE_NCCL_CONF=false \
        sh -c 'hostname "$1" && mount --bind "$2" /etc/hosts && mount -t proc proc /proc && shift 2 && exec "$@"' \
        sh "node-$number" "hosts-$number" "$init" "$@" -- "$python" "$here/gloo.py" "$seconds" \
        >"node-$number" 2>&1
}

status=0
node 1 "$@" &
first=$!
node 2 "$@" || status=$?
wait $first || status=$?
exit $status
