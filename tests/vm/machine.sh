# For setup.sh and run.sh: the machine that RDMA_INIT_VM_MACHINE names, in the repository `repo`.
# shellcheck shell=sh disable=SC2034,SC2154

# ARCHITECTURE, or ARCHITECTURE-PAGE.
machine=${RDMA_INIT_VM_MACHINE:-$(uname -m)}
architecture=${machine%%-*}

# The package of QEMU, and packages of a kernel: the first available one is used.
case $machine in
    x86_64) emulator=qemu-system-x86 kernels='linux-image-amd64 linux-image-generic' ;;
    x86_64-6.12) emulator=qemu-system-x86 kernels='linux-image-6.12-amd64 linux-image-amd64' ;;
    aarch64) emulator=qemu-system-arm kernels='linux-image-arm64 linux-image-generic' ;;
    aarch64-16k) emulator=qemu-system-arm kernels='linux-image-arm64-16k linux-image-6.12-arm64-16k' ;;
    # Debian has no such kernel, so kernel_64k.sh builds one.
    aarch64-64k) emulator=qemu-system-arm kernels= ;;
    *) die "no machine $machine: RDMA_INIT_VM_MACHINE is x86_64, x86_64-6.12, aarch64, aarch64-16k or aarch64-64k" ;;
esac

cache=$repo/target/vm
[ "$machine" = "$(uname -m)" ] || cache=$repo/target/vm-$machine

# A guest of another architecture has its own Debian in this directory; any other guest uses the files of
# this machine.
debian=
[ "$architecture" = "$(uname -m)" ] || debian=$repo/target/vm-debian-$architecture
