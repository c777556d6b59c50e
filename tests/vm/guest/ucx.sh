#!/bin/sh
# Tests what UCX uses in a container with soft-RoCE, and what the program predicts about it: with nothing
# set, UCX also uses the HCA of the default route, and the host's GIDs; with the filled-in values, it uses
# the HCAs of the job and the container's GIDs. The test only examines what UCX chooses: the datagrams with
# which Debian's UCX 1.13 connects do not arrive over soft-RoCE, whatever the GID. nixl.sh moves data, with
# a later UCX. This also tests why libfabric needs no variables.
#   ucx.sh BINARY
set -eu
. tests/vm/lib.sh
init=$1

pod_with_a_rail
rxe mlx5_2 eth2 25.11.128.34/27
container_netns pod eth2 net2 25.11.128.41/27

# with VARIABLE=VALUE... -- COMMAND...: runs in the container; the containers share the /etc of the machine,
# which must stay unchanged.
with() {
    in_container pod env RDMA_INIT_CONFIG=/dev/null RDMA_INIT_STATE_DIR= RDMA_INIT_WRITE_NCCL_CONF=false \
        RDMA_INIT_PREPARE_TIMEOUT=60s "$@"
}

# predicted OPTION...: prints what UCX will use according to the program.
predicted() {
    with "$init" plan --json "$@" | sed -n 's/^ *"will": "\(take .*\)"$/\1/p'
}

# told: a process that connects to itself over the network, with UCX's log. The connection fails, see above,
# and this timeout makes it fail soon.
told='UCX_LOG_LEVEL=debug UCX_UD_TIMEOUT=3s ucx_info -e -u t -D net'

# devices TRANSPORT-PATTERN: prints which devices UCX lists.
devices() {
    with ucx_info -d | awk -v wanted="$1" '/Transport:/ { is = $3 ~ wanted } /Device:/ && is { print $3 }' |
        sort -u | xargs | sed 's/ /, /g'
}

echo '--- nothing is set'
ports=$(devices '^(rc|ud)_')
expect 'UCX lists each HCA' "$ports" 'mlx5_0:1, mlx5_1:1, mlx5_2:1'
# shellcheck disable=SC2086
with env $told >/run/out 2>&1 || :
expect 'UCX takes the slot of the host on each' \
    "$(sed -n 's/.* \(mlx5_[0-9]:1\) using gid_index \([0-9]*\)$/\1 \2/p' /run/out | sort -u | xargs)" \
    "mlx5_0:1 $host mlx5_1:1 $host mlx5_2:1 $host"
keep='--keep UCX_NET_DEVICES --keep UCX_IB_GID_INDEX'
# shellcheck disable=SC2086
of_ucx=$(predicted $keep)
expect 'and that is predicted' "${of_ucx%, and TCP*}" \
    "take mlx5_0:1..mlx5_2:1 with GID index $host"
expect 'TCP, too' "$(echo "${of_ucx#*and TCP on }" | tr -d , | xargs -n 1 | sort | xargs)" \
    "$(devices tcp | tr -d , | xargs -n 1 | sort | xargs)"

echo '--- what is filled in'
with "$init" env --format docker | grep UCX_ | sort >/run/out
expect 'the variables' "$(xargs </run/out)" \
    "UCX_IB_GID_INDEX=$own UCX_NET_DEVICES=mlx5_1:1,mlx5_2:1,eth0"
expect 'what is predicted' "$(predicted)" "take mlx5_1:1, mlx5_2:1 with GID index $own, and TCP on eth0"
# shellcheck disable=SC2086
with "$init" -- env $told >/run/out 2>/run/log || :
cat /run/out >>/run/log
expect 'the slot that UCX takes' "$(grep -o 'sgid_index=[0-9]*' /run/log | sort -u | xargs)" "sgid_index=$own"
expect 'the HCAs that UCX takes' "$(grep -o 'rc_verbs/mlx5_[0-9]:1' /run/log | sort -u | xargs)" \
    'rc_verbs/mlx5_1:1 rc_verbs/mlx5_2:1'

echo '--- a value of the user for the host'
with env UCX_IB_GID_INDEX="$host" "$init" plan >/run/out
grep -q "UCX takes GID index $host of mlx5_1:1" /run/out || fail "the host's slot is not named: $(cat /run/out)"
with env UCX_NET_DEVICES=mlx5_1 "$init" plan >/run/out
grep -q 'the number of the port belongs to the name' /run/out || fail "a name without a port: $(cat /run/out)"
with env UCX_NET_DEVICES=mlx5_1 ucx_info -e -u t -D net >/run/out 2>&1 || :
grep -q "'mlx5_1' is not available" /run/out || fail "UCX knows a name without a port: $(cat /run/out)"
echo 'ok: what UCX makes of it is told'

echo '--- libfabric'
# fabric COMMAND...: prints the HCAs that libfabric lists, each with the address that it would use there.
fabric() {
    with "$@" fi_info -p verbs -t FI_EP_MSG -v 2>/dev/null | awk '
        $1 == "src_addr:" { sub(".*//", "", $2); sub(":[0-9]*$", "", $2); address = $2 }
        $1 == "fi_domain_attr:" { of_domain = 1 }
        of_domain && $1 == "name:" { if (address ~ /[.]/) print $2, address; of_domain = 0 }' | sort -u | xargs
}
takes='mlx5_0 10.0.60.77 mlx5_1 25.11.128.9 mlx5_2 25.11.128.41'
expect 'it takes the addresses of the container' "$(fabric env)" "$takes"
expect 'what is filled in changes nothing of that' "$(fabric "$init" --)" "$takes"
with env FI_PROVIDER=efa fi_info >/run/out 2>&1 && fail "it has EFA here: $(cat /run/out)"
echo 'ok: asked for EFA, it has nothing'
loaded=$(ldd "$(command -v fi_info)" | awk '/libfabric/ { print $3 }')
with "$init" inspect --json | grep -qF "$(realpath "$loaded")" || fail "$loaded is not found in the image"
echo 'ok: the library that it loads is found'
