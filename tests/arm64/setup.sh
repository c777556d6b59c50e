#!/bin/sh
# Lets this machine run arm64 programs directly, through QEMU, until it is rebooted, as Debian's package
# does where systemd runs. Also downloads the NCCL libraries for arm64.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
kernel=/proc/sys/fs/binfmt_misc
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

if [ ! -e $kernel/qemu-aarch64 ]; then
    [ -e $kernel/register ] || $sudo mount -t binfmt_misc binfmt_misc $kernel
    echo "setup: programs of arm64 are started with QEMU from now on" >&2
    $sudo cp /usr/lib/binfmt.d/qemu-aarch64.conf $kernel/register
fi
RDMA_INIT_TEST_NCCL_ARCHITECTURE=aarch64 sh "$here/../nccl/setup.sh"
