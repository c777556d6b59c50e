#!/bin/sh
# Tests what Mooncake uses in a container with soft-RoCE, what the program predicts about it, and whether
# Mooncake can move data with the filled-in values. The data moves on the machine itself, because the
# soft-RoCE of this kernel sends nothing from the addresses of another network namespace.
#   mooncake.sh BINARY WHEEL
set -eu
. tests/vm/lib.sh
init=$1
export PYTHONPATH="$2" MC_LOG_LEVEL=INFO GLOG_logtostderr=1
engine=tests/vm/guest/engine.py

pod_with_a_rail

# with VARIABLE=VALUE... -- COMMAND...: the containers share the /etc of the machine, which must stay
# unchanged.
alone='env RDMA_INIT_CONFIG=/dev/null RDMA_INIT_STATE_DIR= RDMA_INIT_WRITE_NCCL_CONF=false
    RDMA_INIT_PREPARE_TIMEOUT=60s RDMA_INIT_LIBRARIES=mooncake'

# taken COMMAND...: prints the HCAs and GID indexes that Mooncake reports to use.
taken() {
    "$@" python3 "$engine" take 127.0.0.1 >/run/out 2>&1 || { cat /run/out; fail 'Mooncake ends'; }
    sed -n 's/.*RDMA device: \([^,]*\), .*GID_Index \([0-9]*\).*/\1 \2/p' /run/out | sort -u | xargs
}

echo '--- in a container, nothing is set'
expect 'Mooncake takes each HCA, and the slots of the host' "$(taken in_container pod)" \
    "mlx5_0 $host mlx5_1 $host"

echo '--- in a container, with what is filled in'
# shellcheck disable=SC2086
in_container pod $alone "$init" plan --why MC_MS_FILTERS >/run/why
grep -q 'without it, Mooncake may take mlx5_0:1, which the job skips' /run/why || { cat /run/why; fail 'no reason'; }
# shellcheck disable=SC2086
expect 'Mooncake takes the HCA of the job and the slot of the container' \
    "$(taken in_container pod $alone "$init" --)" "mlx5_1 $own"

echo '--- a value in a conf file of NCCL is not seen'
echo "NCCL_IB_GID_INDEX=$own" >/etc/nccl.conf
expect 'Mooncake takes the slots of the host' "$(taken in_container pod)" "mlx5_0 $host mlx5_1 $host"
# shellcheck disable=SC2086
in_container pod $alone "$init" env --format docker >/run/env
grep -qx "MC_GID_INDEX=$own" /run/env || { cat /run/env; fail 'no MC_GID_INDEX is filled in'; }
# shellcheck disable=SC2086
expect 'with it, the slot of the container' "$(taken in_container pod $alone "$init" --)" "mlx5_1 $own"
rm /etc/nccl.conf

echo '--- data'
# A packet from an HCA can only reach the same HCA, so both processes must use the same one.
ip route add default via 10.0.60.1 dev eth0
# shellcheck disable=SC2086
$alone "$init" -- python3 "$engine" transfer 127.0.0.1 >/run/out 2>&1 || { cat /run/out; fail 'it ends'; }
grep -q '^transfer: 0, the data arrived' /run/out || { cat /run/out; fail 'no data with what is filled in'; }
echo 'ok: with what is filled in'
# The container's GID cannot be used from here, and an empty entry cannot be used anywhere.
MC_GID_INDEX=77 timeout 60 python3 "$engine" transfer 127.0.0.1 >/run/out 2>&1 || :
! grep -q '^transfer: 0' /run/out || fail 'data moves over an empty slot'
grep -q 'GID is NULL' /run/out || { cat /run/out; fail 'it is not the slot'; }
echo 'ok: without a right slot, nothing moves'
# shellcheck disable=SC2086
MC_GID_INDEX=77 $alone "$init" plan >/run/plan
grep -q 'MC_GID_INDEX=77 (environment): Mooncake takes GID index 77 of mlx5_1:1' /run/plan || { cat /run/plan; fail 'it is not told'; }
echo 'ok: and that is told'
