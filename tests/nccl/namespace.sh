#!/bin/sh
# Creates the environment of a container in new network and mount namespaces. It prints "ready", and keeps
# running until its input ends.
#
#     unshare --net --mount tests/nccl/namespace.sh FOLDER
#
# FOLDER is empty. Mounts in it disappear with the namespace.
set -eu
folder=$1

# /sys gets the links of this namespace, and an HCA without a device node. No program can use this HCA, but
# rdma-init predicts what NCCL will do only if there is one. The kernel's /sys does not allow new
# directories, so a tmpfs replaces a part of it.
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/net" "$folder/etc" "$folder/work" "$folder/home" "$folder/database"
mount --bind /sys/class/net "$folder/net"
mount -t tmpfs tmpfs /sys/class
mkdir /sys/class/net
mount --bind "$folder/net" /sys/class/net
port=/sys/class/infiniband/mlx5_0/ports/1
mkdir -p "$port/gids" "$port/gid_attrs/types" "$port/gid_attrs/ndevs"
echo '1: CA' >/sys/class/infiniband/mlx5_0/node_type
echo '4: ACTIVE' >$port/state
echo Ethernet >$port/link_layer

# /etc gets its own nccl.conf, and a home directory in the user database.
mount -t overlay -o "lowerdir=/etc,upperdir=$folder/etc,workdir=$folder/work" overlay /etc
rm -f /etc/nccl.conf /etc/rdma-init.toml
sed -i "s|^root:.*|root:x:0:0:root:$folder/database:/bin/sh|" /etc/passwd

# /run is empty, as in a new container: a state of this machine or of another test in it would say which of the
# variables a start filled in.
mount -t tmpfs tmpfs /run

# Some kernels create a few links in each new namespace; these are removed.
for link in ifb0 ifb1; do
    ip link del $link 2>/dev/null || :
done
ip link set lo up
echo ready
exec cat
