#!/bin/sh
# Prepares what tests/vm/run.sh boots: a distribution kernel, its modules, and an initramfs, all below one
# cache directory. The machine gets the few tools that it lacks, but never another kernel of its own.
#
#   tests/vm/setup.sh [CACHE]      CACHE defaults to target/vm of the repository
#
# A complete cache is kept: delete the directory to get a newer kernel. RDMA_INIT_VM_MACHINE chooses another
# machine, see run.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
repo=$(cd "$here/../.." && pwd -P)

# These modules are loaded before the root file system is mounted, so they must be in the initramfs.
boot_modules='virtio_pci virtio_console 9pnet_virtio 9p overlay'
# Soft-RoCE, and the links that container networks consist of. rdma_rxe requests crc32 from the crypto layer
# by name, which is not listed in modules.dep.
rdma_modules='crc32_generic ib_uverbs rdma_rxe dummy macvlan 8021q veth'

# Packages for guests with this machine's architecture, without CUDA and without a GPU.
mooncake='mooncake-transfer-engine-non-cuda==0.3.13.post1'
nvshmem='nvidia-nvshmem-cu12==3.2.5'

say() { echo "vm setup: $*" >&2; }
die() { say "$*"; exit 1; }

# shellcheck source=tests/vm/machine.sh
. "$here/machine.sh"
# shellcheck source=tests/vm/debian.sh
. "$here/debian.sh"
# shellcheck source=tests/vm/kernel_64k.sh
. "$here/kernel_64k.sh"
cache=${1:-$cache}

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

# apt-get WORDS...: tries the existing package lists first. Refreshing them takes longer than most of the
# rest, and is needed only if they are missing or name a version that the mirror has dropped.
apt() {
    "$@" && return 0
    $sudo apt-get -q update >&2
    "$@"
}

# have PROGRAM PACKAGE: adds the package to `missing` if the program is not installed.
have() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

install_missing() {
    missing=
    # Administrators' tools may be outside a user's search path.
    PATH=$PATH:/usr/sbin:/sbin
    have "qemu-system-$architecture" "$emulator"
    have cpio cpio
    have modprobe kmod
    [ -n "$debian" ] || tools_of_guest
    [ -n "$kernels" ] || tools_of_build
    [ -n "$missing" ] || return 0
    say "installing$missing"
    # shellcheck disable=SC2086
    apt $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q install -y -o DPkg::Lock::Timeout=300 \
        --no-install-recommends $missing >&2 || die "cannot install$missing"
}

# Installs the tools that a guest uses from this machine.
tools_of_guest() {
    have ip iproute2
    have rdma iproute2
    have ib_write_bw perftest
    have ucx_info ucx-utils
    have fi_info libfabric-bin
    have ssh openssh-client
    have python3 python3
    have cc gcc
    have dockerd docker.io
    have apparmor_parser apparmor
    [ -e /usr/include/infiniband/verbs.h ] || missing="$missing libibverbs-dev"
    python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
    # A busybox that needs a loader cannot be the only program in an initramfs.
    if ! [ -x /bin/busybox ] || ldd /bin/busybox >/dev/null 2>&1; then
        missing="$missing busybox-static"
    fi
}

# Prints the packages with the kernel image and its modules: Debian has one, Ubuntu splits it into three.
kernel_packages() {
    for meta in $kernels; do
        found=$(apt-cache depends --recurse --no-recommends --no-suggests \
            --no-conflicts --no-breaks --no-replaces --no-enhances "$meta" \
            2>/dev/null |
            grep -E '^linux-(image|modules|modules-extra)-[0-9]') || continue
        echo "$found" | sort -u
        return 0
    done
    return 1
}

fetch_kernel() {
    rm -rf "$cache/kernel" "$cache/fetch"
    mkdir -p "$cache/kernel" "$cache/fetch"
    # The names are determined again after the lists are refreshed, because the new lists may have later
    # versions. Otherwise apt would download as a user that may not write here.
    download() {
        packages=$(kernel_packages) || return 1
        # shellcheck disable=SC2086
        say fetching $packages
        # shellcheck disable=SC2086
        (cd "$cache/fetch" &&
            apt-get -q download -o APT::Sandbox::User="$(id -un)" $packages >&2)
    }
    apt download || die 'cannot download a kernel'
    for deb in "$cache"/fetch/*.deb; do
        dpkg-deb -x "$deb" "$cache/kernel"
    done
    rm -rf "$cache/fetch"
    # Three quarters of the modules are for devices that this machine does not have.
    (
        cd "$cache"/kernel/lib/modules/*/kernel
        rm -rf sound
        for folder in drivers/*; do
            case ${folder#drivers/} in
                block|char|infiniband|net|nvme|ptp|vhost|virtio) ;;
                *) rm -rf "$folder" ;;
            esac
        done
    )
    depmod -b "$cache/kernel" "$(basename "$cache"/kernel/lib/modules/*)"
    unpack_kernel
    # The last step: if the image is missing, the kernel was not downloaded completely.
    mv -f "$cache/kernel/image" "$cache/vmlinux"
}

# Downloads an sshd for the guests. It is unpacked but not installed, because installing would start it on
# this machine.
fetch_sshd() {
    rm -rf "$cache/sshd" "$cache/fetch"
    mkdir -p "$cache/sshd" "$cache/fetch"
    download() {
        (cd "$cache/fetch" && apt-get -q download -o APT::Sandbox::User="$(id -un)" openssh-server >&2)
    }
    apt download || die 'cannot download an sshd'
    dpkg-deb -x "$cache"/fetch/*.deb "$cache/sshd"
    rm -rf "$cache/fetch"
    libraries=$(ldd "$cache/sshd/usr/sbin/sshd" | awk '/not found/ { print $1 }')
    case $libraries in
        '') ;;
        *libwrap*) apt $sudo apt-get -qq install -y libwrap0 >/dev/null ;;
        *) die "sshd needs $libraries" ;;
    esac
}

# fetch_wheel NAME REQUIREMENT LIBRARY: downloads a wheel for this machine's Python, and unpacks it in the
# directory NAME without installing it. The machine must have what LIBRARY needs, and only LIBRARY is kept
# from a large wheel.
fetch_wheel() {
    rm -rf "${cache:?}/$1" "$cache/fetch"
    mkdir -p "$cache/$1" "$cache/fetch"
    python3 -m pip download -q --no-deps --only-binary=:all: -d "$cache/fetch" "$2" >&2 ||
        die "pip could not fetch $2 (see above)"
    python3 - "$cache"/fetch/*.whl "$cache/$1" "$3" <<'END'
import sys, zipfile
wheel, folder, library = sys.argv[1:]
archive = zipfile.ZipFile(wheel)
is_large = sum(entry.file_size for entry in archive.infolist()) > 200 << 20
archive.extractall(folder, [library] if is_large else None)
END
    rm -rf "$cache/fetch"
    libraries=$(ldd "$cache/$1/$3" | awk '/not found/ { print $1 }')
    [ -z "$libraries" ] || die "$2 needs $libraries"
    # The last step: if this file is missing, the wheel was not downloaded completely.
    : >"$cache/$1/ready"
}

# Writes the module or kernel $1 uncompressed. Its name or format is $2.
unpack() {
    case $2 in
        *.zst) command -v zstd >/dev/null || apt $sudo apt-get -q install -y zstd >&2 ;;
    esac
    case $2 in
        *.gz) gzip -qdc "$1" ;;
        *.xz) xz -qdc --single-stream "$1" ;;
        *.zst) zstd -qdc "$1" ;;
        *) cat "$1" ;;
    esac
}

# Under emulation, the kernel takes seconds to unpack itself, half of the boot time, so this unpacks it in
# advance. QEMU starts such an image at its PVH entry point. A kernel without one, or with another kind of
# compression, stays as it is.
unpack_kernel() {
    packed=$(echo "$cache"/kernel/boot/vmlinuz-*)
    cp "$packed" "$cache/kernel/image"
    grep -q '^CONFIG_PVH=y' "$cache"/kernel/boot/config-* || return 0
    number() { od -An -j"$2" -N"$3" -tu"$3" "$1" | tr -d ' '; }
    # From the x86 boot protocol: the number of setup sectors (besides the boot sector), then the offset and
    # length of the payload, which ends with its uncompressed size.
    start=$((($(number "$packed" 497 1) + 1) * 512 + $(number "$packed" 584 4)))
    length=$(number "$packed" 588 4)
    tail -c +$((start + 1)) "$packed" | head -c "$length" >"$cache/kernel/payload"
    case $(od -An -N4 -tx1 "$cache/kernel/payload" | tr -d ' ') in
        1f8b*) format=.gz ;;
        fd377a58) format=.xz ;;
        28b52ffd) format=.zst ;;
        *) return 0 ;;
    esac
    # A failure status is expected, because the size follows the stream.
    unpack "$cache/kernel/payload" $format >"$cache/kernel/unpacked" 2>/dev/null || :
    wanted=$(number "$cache/kernel/payload" $((length - 4)) 4)
    [ "$(wc -c <"$cache/kernel/unpacked")" != "$wanted" ] ||
        mv -f "$cache/kernel/unpacked" "$cache/kernel/image"
    rm -f "$cache/kernel/payload" "$cache/kernel/unpacked"
}

depends_of() {
    # /etc/modprobe.d is for this machine, not for the virtual one.
    modprobe -C /dev/null -d "$cache/kernel" -S "$version" --show-depends "$1"
}

build_initramfs() {
    version=$(basename "$cache"/kernel/lib/modules/*)
    top=$cache/initramfs.d
    rm -rf "$top"
    mkdir -p "$top/bin" "$top/dev" "$top/proc" "$top/sys" "$top/lower" \
        "$top/top" "$top/new" "$top/modules"
    cp "$busybox" "$top/bin/busybox"

    for module in $boot_modules $rdma_modules; do
        depends_of "$module" >>"$top/order" 2>/dev/null && continue
        # Later kernels have crc32 built in, without a module of this name.
        [ "$module" = crc32_generic ] || die "the kernel lacks $module"
    done
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }' "$top/order" |
        while read -r file; do
            name=$(basename "$file")
            name=${name%%.ko*}.ko
            unpack "$file" "$file" >"$top/modules/$name"
            case $name in
                # It would otherwise create a link that no test requested.
                dummy.ko) echo "$name numdummies=0" ;;
                *) echo "$name" ;;
            esac
        done >"$top/modules/order"
    rm "$top/order"

    (cd "$top" && find . | LC_ALL=C sort |
        cpio -o -H newc --quiet -R 0:0) >"$cache/initramfs"
    rm -rf "$top"
}

# Finds out whether a guest answers under KVM within seconds, which the device node does not prove. Another boot of this
# machine, another QEMU, or another kernel asks again.
choose_accelerator() {
    asked="$(cat /proc/sys/kernel/random/boot_id) $("qemu-system-$architecture" --version | head -n 1) $stamp"
    [ "$(sed 1d "$cache/accel" 2>/dev/null)" != "$asked" ] || return 0
    accelerator=tcg
    if [ "$architecture" = "$(uname -m)" ] && [ -w /dev/kvm ] &&
        RDMA_INIT_VM_ACCEL=kvm RDMA_INIT_VM_TIMEOUT=10 RDMA_INIT_VM_CACHE=$cache \
            "$here/run.sh" /bin/true >/dev/null 2>&1 9>&-; then
        accelerator=kvm
    fi
    printf '%s\n' "$accelerator" "$asked" >"$cache/accel"
    say "the guests use $accelerator"
}

mkdir -p "$cache"
cache=$(cd "$cache" && pwd -P)
# Concurrent tests may each need the programs and the cache.
exec 9>"$cache/lock"
flock 9
install_missing

busybox=/bin/busybox
if [ -n "$debian" ]; then
    # Other machines use the same Debian.
    mkdir -p "$debian"
    exec 8>"$debian/lock"
    flock 8
    use_its_apt
    stamp=$(cksum <"$here/debian.sh")
    if [ "$(cat "$debian/stamp" 2>/dev/null)" != "$stamp" ]; then
        fetch_root
        echo "$stamp" >"$debian/stamp"
    fi
    busybox=$debian/root/bin/busybox
fi

# If these files or busybox change, a new initramfs is needed. The kernel stays, unless it is one that is
# built here and its configuration has changed.
stamp=$(cat "$here/setup.sh" "$here/machine.sh" "$here"/guest/*.c "$here/kernel_64k.config" "$busybox" | cksum)
if [ -f "$cache/stamp" ] && [ "$(cat "$cache/stamp")" = "$stamp" ]; then
    choose_accelerator
    exit 0
fi
rm -f "$cache/stamp"
[ -n "$kernels" ] || cmp -s "$here/kernel_64k.config" "$cache/config" || rm -f "$cache/vmlinux"
if [ ! -f "$cache/vmlinux" ]; then
    if [ -n "$kernels" ]; then fetch_kernel; else build_kernel; fi
fi
build_initramfs
if [ "$machine" = "$(uname -m)" ]; then
    [ -x "$cache/sshd/usr/sbin/sshd" ] || fetch_sshd
    [ -f "$cache/mooncake/ready" ] || fetch_wheel mooncake "$mooncake" mooncake/engine.so
    # NVIDIA has wheels for both architectures.
    [ -f "$cache/nvshmem/ready" ] || fetch_wheel nvshmem "$nvshmem" nvidia/nvshmem/lib/nvshmem_transport_ibrc.so.3
    cc -shared -fPIC -O1 -Wall -Wextra -o "$cache/nvshmem/spy.so" "$here/guest/spy.c"
fi
# A guest of another architecture could not load it.
[ -n "$debian" ] || cc -shared -fPIC -O1 -Wall -Wextra -o "$cache/few_retries.so" "$here/guest/few_retries.c"
echo "$stamp" >"$cache/stamp"
choose_accelerator
say "ready in $cache"
