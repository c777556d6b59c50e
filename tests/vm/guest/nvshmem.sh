#!/bin/sh
# Tests what NVSHMEM's transport uses in a container with soft-RoCE, with nothing set and with the filled-in
# values, and that it reads none of NCCL's variables. It chooses HCAs and GIDs before it looks for a GPU.
#   nvshmem.sh BINARY WHEEL        with spy.so in the directory of the wheel
set -eu
. tests/vm/lib.sh
init=$1
module=$2/nvidia/nvshmem/lib/nvshmem_transport_ibrc.so.3
spy=$2/spy.so

pod_with_a_rail

# with COMMAND...: runs it in the container; the containers share the /etc of the machine, which must stay
# unchanged.
with() {
    in_container pod env RDMA_INIT_CONFIG=/dev/null RDMA_INIT_STATE_DIR= RDMA_INIT_WRITE_NCCL_CONF=false \
        RDMA_INIT_PREPARE_TIMEOUT=60s RDMA_INIT_LIBRARIES=nvshmem "$@"
}

# taken COMMAND...: prints the HCAs and GID indexes that NVSHMEM uses: the last GID that it queries is the
# one it has chosen.
taken() {
    with "$@" env LD_AUDIT="$spy" python3 tests/vm/guest/transport.py "$module" >/run/out 2>&1
    grep -q '^nvshmemt_init' /run/out || { cat /run/out; fail 'NVSHMEM ends'; }
    awk '$1 == "asked" { slot[$2] = $3 } END { for (port in slot) print port, slot[port] }' /run/out | sort | xargs
}

echo '--- nothing is set'
expect 'NVSHMEM takes each HCA, and the slots of the host' "$(taken)" "mlx5_0:1 $host mlx5_1:1 $host"

echo '--- what is filled in'
with "$init" env --format docker | grep ^NVSHMEM_ | sort | xargs >/run/env
expect 'what is filled in' "$(cat /run/env)" "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=eth0 NVSHMEM_HCA_LIST=mlx5_1:1 NVSHMEM_IB_GID_INDEX=$own"
expect 'NVSHMEM takes the HCA of the job and the slot of the container' "$(taken "$init" --)" "mlx5_1:1 $own"

echo "--- an index of NCCL's"
expect 'NVSHMEM does not read it' "$(taken env NCCL_IB_GID_INDEX="$own")" "mlx5_0:1 $host mlx5_1:1 $host"
expect 'with a wrong one, NVSHMEM gets the right one all the same' \
    "$(taken env NCCL_IB_GID_INDEX="$host" "$init" --)" "mlx5_1:1 $own"

echo '--- an index of its own that is wrong'
expect 'it stands' "$(taken env NVSHMEM_IB_GID_INDEX="$host" "$init" --)" "mlx5_1:1 $host"
with env NVSHMEM_IB_GID_INDEX="$host" "$init" plan >/run/plan
grep -q "NVSHMEM_IB_GID_INDEX=$host (environment): NVSHMEM takes GID index $host of mlx5_1:1" /run/plan ||
    { cat /run/plan; fail 'it is not told'; }
echo 'ok: and that is told'
