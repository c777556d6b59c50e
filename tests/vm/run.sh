#!/bin/sh
# Runs a script as root in a virtual machine whose kernel has soft-RoCE:
#
#   tests/vm/run.sh [-m MODULE]... [-l LOCAL:REMOTE]... [-b PORT:NUMBER]... SCRIPT [ARG...]
#
# The guest sees this machine's files at the same paths, read-only under a temporary layer: everything that
# it writes is lost afterwards. /tmp, /run, /dev, /proc, and /sys are its own; of the host's /tmp and /run,
# it sees the directory of the repository, of SCRIPT, and of each ARG that is an absolute path. A guest of
# another architecture has its own Debian, and sees only these directories of this machine. SCRIPT starts in
# the repository with a separate environment; its output is the standard output of this script, and its exit
# status the status of this script.
#
#   -m MODULE         load one more kernel module, with its dependencies
#   -l LOCAL:REMOTE   a network interface (eth0, eth1, ...) whose frames go from the UDP
#                     port LOCAL of this machine to REMOTE, which is another guest's
#   -b PORT:NUMBER    a network interface on a network of several guests, which have the same PORT
#                     and different NUMBERs
#
#   RDMA_INIT_VM_TIMEOUT  seconds for boot and script together (180)
#   RDMA_INIT_VM_MEMORY   memory of the guest in MiB (2048)
#   RDMA_INIT_VM_CPUS     CPUs of the guest (2)
#   RDMA_INIT_VM_MACHINE  the guest: x86_64 or x86_64-6.12, by kernel; aarch64, aarch64-16k, or aarch64-64k, by page size
#                         (this machine's own architecture)
#   RDMA_INIT_VM_CACHE    what setup.sh prepared (target/vm of the repository, target/vm-MACHINE)
#
# Status 124: the time limit expired; 125: the virtual machine did not work.
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

# The guest's two programs are beside the prepared initramfs, so that changing them needs no new set-up; the
# kernel unpacks both archives.
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

# The script's arguments are in the initramfs by now. The MAC address of the interface distinguishes guests.
# The interface is not used for booting, so it needs no ROM.
set --
for link in $links; do
    case $link in
        bus:*)
            port=${link#bus:}
            guest=${port#*:} port=${port%:*}
            mac=$(printf '52:54:%02x:00:%02x:%02x' "$guest" $((port / 256)) $((port % 256)))
            # Multicast packets do not leave this machine.
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

# No KVM, because the device node may exist but not work. The CPU has a random source, and otherwise only
# what programs need, because every further feature slows down the emulation.
case $architecture in
    x86_64) console=ttyS0 board=pc processor=qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+fsgsbase,+rdrand ;;
    # This kind of pointer authentication is cheap to emulate.
    aarch64) console=ttyAMA0 board=virt processor=max,pauth-impdef=on ;;
esac
# The kernel's test of its timer compares real time with emulated time, and stops a guest whose host is busy.
quirks=
[ "$architecture" != x86_64 ] || quirks=no_timer_check

# boot: runs the guest until it ends. `ended` is the status of QEMU, and `status` the script's, if it ended. A kernel
# without modules would otherwise create a dummy link that no test requested.
boot() {
    # This descriptor opens both ends, so that neither the reader nor QEMU waits for the other to open the pipe,
    # even if QEMU never starts.
    rm -f "$work/out" "$work/report" "$work/console"
    mkfifo "$work/out"
    exec 8<>"$work/out"
    cat <"$work/out" 8>&- &
    reader=$!
    timeout -k 5 "$limit" "qemu-system-$architecture" \
        -accel tcg,thread=multi -machine "$board" -cpu "$processor" \
        -smp "${RDMA_INIT_VM_CPUS:-2}" -m "${RDMA_INIT_VM_MEMORY:-2048}" \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$cache/vmlinux" -initrd "$work/initramfs" \
        -append "console=$console rdinit=/init panic=-1 mitigations=off cryptomgr.notests dummy.numdummies=0 $quirks" \
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
    touch "$work/report"
    status=$(sed -n 's/^status //p' "$work/report")
}

# log [FIRST]: prints the messages of QEMU and of the kernel, the latter from line FIRST on.
log() {
    sed 's/^/vm qemu: /' "$work/qemu"
    [ ! -f "$work/console" ] ||
        sed -n "/${1:-^}/,\$s/^/vm kernel: /p" "$work/console"
}

boot "$@"
# An emulated kernel can fail while it boots on a busy machine, before anything of the script runs.
if [ -z "$status" ] && [ "$ended" != 124 ] && [ "$ended" != 137 ] && ! grep -q . "$work/report"; then
    log | tail -n 40 >&2
    say 'the guest ended while it booted (see above), and is booted once more'
    boot "$@"
fi
[ "$status" != 0 ] || exit 0
# The kernel's boot messages matter only if no script was started; the last ones say why.
if grep -q started "$work/report"; then
    log 'Run .init as init' >&2
else
    log | tail -n 60 >&2
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
