#!/bin/sh
# Tests NIXL itself, with the UCX from its wheel: without the program, it uses TCP, or fails if the user's
# list contains only HCAs; with the values that the program fills in, its data moves over RDMA. Another
# network namespace has an address on the HCA's interface, and the GID of that address comes first, as the
# host's does in a container. (With the GID of a container's namespace, UCX's queue pairs fail over the
# soft-RoCE of Linux 6.1, so the job runs in the machine's own namespace.)
#   nixl.sh BINARY ENVIRONMENT
set -eu
. tests/vm/lib.sh
init=$1
environment=$2
libraries=$(echo "$environment"/lib/python3*/site-packages/nixl_cu12.libs)

RDMA_INIT_CONFIG=/dev/null VIRTUAL_ENV="$environment" "$init" inspect >/run/out
has 'the libibverbs of the wheel is told' 'package nixl-cu12 .*, its own libibverbs: nixl_cu12.libs/libibverbs-'

# The libibverbs in the wheel supports only mlx5, so it is replaced with the one that supports soft-RoCE.
for name in ibverbs mlx5; do
    ln -sf "$(ldconfig -p | awk -v name="lib$name.so.1" '$1 == name { print $NF; exit }')" \
        "$(echo "$libraries"/lib$name-*.so.*)"
done

no_duplicate_search
ip link add eth1 type dummy
ip link set eth1 up
rdma link add mlx5_1 type rxe netdev eth1
container_netns pod eth1 net1 25.11.128.41/27
await 'GID of the other namespace' has_gids mlx5_1 25.11.128.41
ip addr add 25.11.128.34/27 dev eth1
await 'GID of this namespace' has_gids mlx5_1 25.11.128.34
other=$(gid_slots mlx5_1 25.11.128.41)
own=$(gid_slots mlx5_1 25.11.128.34)
[ "$other" -lt "$own" ] || fail "the slot $other of the other namespace is not before $own"
ip link add eth0 type dummy
ip addr add 10.0.60.77/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.60.1 dev eth0

# with [VARIABLE=VALUE...] COMMAND...: runs the command; UCX logs which transports it chooses.
with() {
    # shellcheck disable=SC2086
    env $settings "$@"
}
settings="RDMA_INIT_CONFIG=/dev/null RDMA_INIT_STATE_DIR= RDMA_INIT_WRITE_NCCL_CONF=false
    RDMA_INIT_PREPARE_TIMEOUT=60s VIRTUAL_ENV=$environment UCX_LOG_LEVEL=info"
move="$environment/bin/python tests/vm/guest/nixl.py"

# over FILE: prints the transport over which the last connection moves data.
over() { sed -n 's/.* intra-node cfg.* rma[_a-z]*(\([^ )]*\).*/\1/p' "$1" | sort -u | xargs; }

echo '--- nothing is set'
# shellcheck disable=SC2086
with $move >/run/out 2>&1 || fail "NIXL failed: $(cat /run/out)"
grep -q '^arrived' /run/out || fail "no data: $(cat /run/out)"
case $(over /run/out) in
    tcp/*) echo "ok: over $(over /run/out)" ;;
    *) fail "not over TCP: $(cat /run/out)" ;;
esac

echo '--- what is filled in'
# shellcheck disable=SC2086
with "$init" -- $move >/run/out 2>&1 || fail "NIXL failed: $(cat /run/out)"
grep -q '^arrived' /run/out || fail "no data: $(cat /run/out)"
expect 'its data goes over rc_verbs' "$(over /run/out)" rc_verbs/mlx5_1:1

echo '--- a list of HCAs alone'
# shellcheck disable=SC2086
with UCX_NET_DEVICES=mlx5_1:1 $move >/run/out 2>&1 && fail "NIXL works: $(cat /run/out)"
grep -q 'NIXL_ERR_BACKEND' /run/out || fail "another error: $(cat /run/out)"
with UCX_NET_DEVICES=mlx5_1:1 UCX_IB_GID_INDEX="$other" "$init" plan >/run/out
grep -q 'no TCP, so NIXL fails with a backend error' /run/out || fail "that is not told: $(cat /run/out)"
# shellcheck disable=SC2086
with UCX_NET_DEVICES=mlx5_1:1 "$init" -- $move >/run/out 2>&1 || fail "NIXL failed: $(cat /run/out)"
expect 'with what is filled in, its data goes over rc_verbs' "$(over /run/out)" rc_verbs/mlx5_1:1

echo '--- RC alone'
# shellcheck disable=SC2086
with UCX_TLS=rc_verbs "$init" -- $move >/run/out 2>&1 && fail "NIXL works: $(cat /run/out)"
grep -q 'no auxiliary transport' /run/out || fail "another error: $(cat /run/out)"
grep -q 'makes no connection without UD' /run/out || fail "that is not told: $(cat /run/out)"
echo 'ok: it ends, which is told'

echo "--- the node's GID, in a container with an overlay network alone"
overlay_netns overlay 1
ip -netns overlay route add default via 10.244.1.1 dev eth0
# shellcheck disable=SC2086
in_container overlay env $settings UCX_IB_GID_INDEX="$own" $move >/run/out 2>&1 || fail "NIXL failed: $(cat /run/out)"
case $(over /run/out) in
    tcp/*) echo "ok: UCX finds no route from it, and goes over $(over /run/out)" ;;
    *) fail "not over TCP: $(cat /run/out)" ;;
esac
# shellcheck disable=SC2086
in_container overlay env $settings "$init" -- $move >/run/out 2>&1 || fail "NIXL failed: $(cat /run/out)"
has 'what is filled in' 'UCX_IB_ROCE_REACHABILITY_MODE=all'
expect 'its data goes over rc_verbs' "$(over /run/out)" rc_verbs/mlx5_1:1
