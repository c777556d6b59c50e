#!/bin/sh
# Runs a script as root in a virtual machine whose kernel has soft-RoCE:
#
#   tests/vm/run.sh [-m MODULE]... [-l LOCAL:REMOTE]... [-b PORT:NUMBER]... SCRIPT [ARG...]
#
# The guest sees this machine's files at the same paths, read-only under a
# scratch layer: all that it writes is gone afterwards. /tmp, /run, /dev, /proc
# and /sys are its own; of the host's /tmp and /run it sees the directory of the
# repository, of SCRIPT and of each ARG that is an absolute path. A guest of another
# architecture has a Debian of its own, and sees of this machine only such directories.
# SCRIPT starts in the repository with an environment of its own; its output is
# this program's standard output, its exit status this program's.
#
#   -m MODULE         load one more kernel module, with what it needs
#   -l LOCAL:REMOTE   a network card (eth0, eth1, ...) whose frames go from the UDP
#                     port LOCAL of this machine to REMOTE, which is another guest's
#   -b PORT:NUMBER    a network card on a network of several guests, which have the same PORT and
#                     each a NUMBER of its own
#
#   RDMA_INIT_VM_TIMEOUT  seconds for boot and script together (180)
#   RDMA_INIT_VM_MEMORY   MiB of the guest (2048)
#   RDMA_INIT_VM_CPUS     processors of the guest (2)
#   RDMA_INIT_VM_MACHINE  the guest: x86_64, aarch64, aarch64-16k or aarch64-64k, by the size
#                         of its pages (this machine's own architecture)
#   RDMA_INIT_VM_CACHE    what setup.sh prepared (target/vm of the repository, target/vm-MACHINE)
#
# Status 124: beyond the time limit; 125: the virtual machine did not work.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
repo=$(cd "$here/../.." && pwd -P)
limit=${RDMA_INIT_VM_TIMEOUT:-180}

say() { echo "vm: $*" >&2; }
die() { say "$*"; exit 125; }

# shellcheck source=tests/vm/machine.sh
. "$here/machine.sh"
cache=${RDMA_INIT_VM_CACHE:-$cache}

usage='usage: run.sh [-m MODULE]... [-l LOCAL:REMOTE]... [-b PORT:NUMBER]... SCRIPT [ARG...]'
modules=
links=
while getopts m:l:b: option; do
    case $option in
        m) modules="${modules:+$modules }$OPTARG" ;;
        l) links="$links $OPTARG" ;;
        b) links="$links bus:$OPTARG" ;;
        *) die "$usage" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || die "$usage"
[ -z "$links" ] || modules="${modules:+$modules }virtio_net"
[ -f "$cache/stamp" ] || die "no kernel in $cache: run tests/vm/setup.sh first"
cache=$(cd "$cache" && pwd -P)

script=$(command -v "$1") || die "no program $1"
shift
case $script in
    */*) script=$(realpath "$script") ;;
esac
set -- "$script" "$@"

shown=
for path in "$repo" "$@"; do
    case $path in
        /tmp/*/*|/run/*/*) ;;
        /tmp/*|/run/*) [ -d "$path" ] || die "$path: put it in a folder" ;;
        /*) if [ -z "$debian" ] || [ -e "$debian/root$path" ]; then continue; fi ;;
        *) continue ;;
    esac
    [ -e "$path" ] || continue
    [ -d "$path" ] || path=$(dirname "$path")
    shown="$shown $path"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/rdma-init-vm.XXXXXX")
vm=
# shellcheck disable=SC2317
finish() {
    [ -z "$vm" ] || kill "$vm" 2>/dev/null || :
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

quote() {
    printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

# The guest's two programs travel beside the prepared initramfs, so that a
# change of them needs no new setup; the kernel unpacks both archives.
mkdir "$work/top"
cp "$here/guest/init" "$here/guest/main" "$work/top/"
{
    echo "repo=$(quote "$repo")"
    echo "cache=$(quote "$cache")"
    echo "debian=$(quote "$debian")"
    echo "shown=$(quote "$shown")"
    echo "modules=$(quote "$modules")"
    printf 'set --'
    for argument; do
        printf ' %s' "$(quote "$argument")"
    done
    echo
} >"$work/top/job"
(cd "$work/top" && find . | cpio -o -H newc --quiet -R 0:0) |
    cat "$cache/initramfs" - >"$work/initramfs"

# The descriptor on both ends lets neither the reader nor QEMU wait for the
# other to open the pipe, even where QEMU never starts.
mkfifo "$work/out"
exec 8<>"$work/out"
cat <"$work/out" 8>&- &
reader=$!

# The script's arguments are in the initramfs by now. The card's address tells guests
# apart; it boots from nowhere, so needs no ROM.
set --
for link in $links; do
    case $link in
        bus:*)
            port=${link#bus:}
            guest=${port#*:} port=${port%:*}
            mac=$(printf '52:54:%02x:00:%02x:%02x' "$guest" $((port / 256)) $((port % 256)))
            # Packets to a group do not leave this machine.
            set -- "$@" -netdev "socket,id=link$#,mcast=239.255.77.7:$port,localaddr=127.0.0.1" \
                -device "virtio-net-pci,netdev=link$#,mac=$mac,romfile="
            continue
            ;;
    esac
    local=${link%:*}
    mac=$(printf '52:54:00:00:%02x:%02x' $((local / 256)) $((local % 256)))
    set -- "$@" -netdev "socket,id=link$#,udp=127.0.0.1:${link#*:},localaddr=127.0.0.1:$local" \
        -device "virtio-net-pci,netdev=link$#,mac=$mac,romfile="
done

# No KVM: the device node may be there and not work. The processor has a random source, and
# no more than programs need: what is above costs emulation its speed.
case $architecture in
    x86_64) console=ttyS0 board=pc processor=qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+fsgsbase,+rdrand ;;
    # The kind of pointer authentication that is cheap to emulate.
    aarch64) console=ttyAMA0 board=virt processor=max,pauth-impdef=on ;;
esac
# A kernel without modules would come with a dummy link that no test asked for.
timeout -k 5 "$limit" "qemu-system-$architecture" \
    -accel tcg,thread=multi -machine "$board" -cpu "$processor" \
    -smp "${RDMA_INIT_VM_CPUS:-2}" -m "${RDMA_INIT_VM_MEMORY:-2048}" \
    -nodefaults -no-user-config -display none -no-reboot \
    -kernel "$cache/vmlinux" -initrd "$work/initramfs" \
    -append "console=$console rdinit=/init panic=-1 mitigations=off cryptomgr.notests dummy.numdummies=0" \
    -serial "file:$work/console" \
    -device virtio-serial-pci \
    -chardev "file,id=out,path=$work/out" \
    -device virtserialport,nr=1,chardev=out \
    -chardev "file,id=report,path=$work/report" \
    -device virtserialport,nr=2,chardev=report \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
    "$@" \
    </dev/null >"$work/qemu" 2>&1 8>&- &
vm=$!
ended=0
wait "$vm" || ended=$?
vm=
exec 8>&-
wait "$reader" || :

# log [FIRST]: QEMU's words and the kernel's, the latter from line FIRST on.
log() {
    sed 's/^/vm qemu: /' "$work/qemu" >&2
    [ ! -f "$work/console" ] ||
        sed -n "/${1:-^}/,\$s/^/vm kernel: /p" "$work/console" >&2
}

touch "$work/report"
status=$(sed -n 's/^status //p' "$work/report")
[ "$status" != 0 ] || exit 0
# How the kernel came up is of interest only where no script was started.
if grep -q started "$work/report"; then
    log 'Run .init as init'
else
    log
fi
[ -z "$status" ] || exit "$status"
if [ "$ended" = 124 ] || [ "$ended" = 137 ]; then
    if grep -q started "$work/report"; then
        say "$script was not done within $limit s (RDMA_INIT_VM_TIMEOUT)"
    else
        say "the guest was not up within $limit s (RDMA_INIT_VM_TIMEOUT)"
    fi
    exit 124
fi
broken=$(sed -n 's/^broken: //p' "$work/report")
[ -z "$broken" ] || die "$broken"
die "the guest ended without a status of $script"
