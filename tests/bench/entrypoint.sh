#!/bin/sh
# A typical handwritten replacement for rdma-init: finds the HCAs that are up and not on the default route,
# the index of the RoCE v2 GID of the container's own address, and the interface, and raises the limit of
# locked memory.
set -eu

log() { echo "entrypoint: $*" >&2; }

interface=$(ip -4 route show default 2>/dev/null | awk '{ print $5; exit }')
hcas=
gid_index=
for device in $(ls /sys/class/infiniband 2>/dev/null); do
    port=/sys/class/infiniband/$device/ports/1
    if ! grep -q ACTIVE "$port/state"; then
        log "skipping $device: its port is not active"
        continue
    fi
    [ "$(cat "$port/gid_attrs/ndevs/0" 2>/dev/null)" != "$interface" ] || continue
    if [ "$(cat "$port/link_layer")" = Ethernet ]; then
        slot=0
        while [ -e "$port/gids/$slot" ]; do
            type=$(cat "$port/gid_attrs/types/$slot" 2>/dev/null || true)
            gid=$(cat "$port/gids/$slot")
            case $type/$gid in
                "RoCE v2"/0000:0000:0000:0000:0000:ffff:*) break ;;
            esac
            slot=$((slot + 1))
        done
        gid_index=${gid_index:-$slot}
    fi
    hcas=${hcas:+$hcas,}$device
done

if [ -n "$hcas" ]; then
    export NCCL_IB_HCA="${NCCL_IB_HCA:-=$hcas}"
    [ -z "$gid_index" ] || export NCCL_IB_GID_INDEX="${NCCL_IB_GID_INDEX:-$gid_index}"
else
    log "no RDMA device: NCCL will use TCP"
fi
[ -z "$interface" ] || export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-=$interface}"
ulimit -l unlimited 2>/dev/null || log "memory may not be locked: $(ulimit -l) kB"
exec "$@"
