#!/bin/sh
# Runs scripts as root in a virtual machine whose kernel has soft-RoCE:
#
#   tests/vm/run.sh [-b PORT:NUMBER]... [SCRIPT [ARG...]]
#
# The guest sees this machine's files at the same paths, read-only under a temporary layer: everything that
# a script writes is lost when it ends. /tmp, /run, /dev, /proc, and /sys are its own; of the host's /tmp and
# /run, it sees the directory of the repository, of SCRIPT, and of each ARG that is an absolute path. A guest of
# another architecture has its own Debian, and sees only these directories of this machine. SCRIPT starts in
# the repository with a separate environment; its output is the standard output of this script, and its exit
# status the status of this script.
#
# Without SCRIPT, each line of the standard input is one, and the machine runs one after the other:
#
#   TOKEN SCRIPT [ARG...]      words of a shell, with an absolute path of SCRIPT
#
# After the script's output comes a line `TOKEN STATUS clean`, or `TOKEN STATUS left` if the script has left
# something in the kernel that cannot be removed. The machine ends with the input.
#
#   -b PORT:NUMBER    a NIC on a network of several guests, which have the same PORT and different NUMBERs. Only a script
#                     that calls `nics` of lib.sh has an interface for it
#
#   RDMA_INIT_VM_TIMEOUT  seconds for boot and SCRIPT together (180)
#   RDMA_INIT_VM_MEMORY   memory of the guest in MiB (2048)
#   RDMA_INIT_VM_CPUS     CPUs of the guest (1)
#   RDMA_INIT_VM_MACHINE  the guest: x86_64 or x86_64-6.12, by kernel; aarch64, aarch64-16k, or aarch64-64k, by page size
#                         (this machine's own architecture)
#   RDMA_INIT_VM_CACHE    what setup.sh prepared (target/vm of the repository, target/vm-MACHINE)
#   RDMA_INIT_VM_ACCEL    tcg or kvm (what setup.sh found to work)
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

usage='usage: run.sh [-b PORT:NUMBER]... [SCRIPT [ARG...]]'
networks=
while getopts b: option; do
    case $option in
        b) networks="$networks $OPTARG" ;;
        *) die "$usage" ;;
    esac
done
shift $((OPTIND - 1))
# The kernel and the programs in it have timeouts of seconds, and machines wait for each other.
renice -n -15 -p $$ >/dev/null 2>&1 || :
[ -f "$cache/stamp" ] || die "no kernel in $cache: run tests/vm/setup.sh first"
cache=$(cd "$cache" && pwd -P)

quote() {
    printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

job=
if [ $# -gt 0 ]; then
    script=$(command -v "$1") || die "no program $1"
    shift
    case $script in
        */*) script=$(realpath "$script") ;;
    esac
    for path in "$repo" "$script" "$@"; do
        case $path in
            /tmp/*/*|/run/*/*) ;;
            /tmp/*|/run/*) [ -d "$path" ] || die "$path: put it in a folder" ;;
        esac
    done
    token="end-$$"
    job=$token
    for argument in "$script" "$@"; do job="$job $(quote "$argument")"; done
else
    limit=0
    exec 2>&1
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/rdma-init-vm.XXXXXX")
vm=
relay=
# shellcheck disable=SC2317
finish() {
    # Without the relay, which would otherwise end a process that has got the number of this one.
    # shellcheck disable=SC2086
    kill $relay $vm 2>/dev/null || :
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The guest's programs are beside the prepared initramfs, so that changing them needs no new set-up; the
# kernel unpacks both archives.
mkdir "$work/top"
for program in init make_root main job clean; do cp "$here/guest/$program" "$work/top/"; done
{
    echo "repo=$(quote "$repo")"
    echo "cache=$(quote "$cache")"
    echo "debian=$(quote "$debian")"
} >"$work/top/settings"
(cd "$work/top" && find . | cpio -o -H newc --quiet -R 0:0) |
    cat "$cache/initramfs" - >"$work/initramfs"

# The job has the script's arguments by now. The MAC address of the interface distinguishes guests. The
# interface is not used for booting, so it needs no ROM.
set --
for network in $networks; do
    port=${network%:*}
    guest=${network#*:}
    mac=$(printf '52:54:%02x:00:%02x:%02x' "$guest" $((port / 256)) $((port % 256)))
    # Multicast packets do not leave this machine.
    set -- "$@" -netdev "socket,id=link$#,mcast=239.255.77.7:$port,localaddr=127.0.0.1" \
        -device "virtio-net-pci,netdev=link$#,mac=$mac,romfile="
done

# The emulated CPU has a random source, and otherwise only what programs need, because every further feature
# slows down the emulation.
case $architecture in
    x86_64) console=ttyS0 board=pc processor=qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+fsgsbase,+rdrand ;;
    # This kind of pointer authentication is cheap to emulate.
    aarch64) console=ttyAMA0 board=virt processor=max,pauth-impdef=on ;;
esac
accel=${RDMA_INIT_VM_ACCEL:-$(sed -n 1p "$cache/accel")}
case $accel in
    kvm) processor=host ;;
    tcg) accel=tcg,thread=multi ;;
esac
# The kernel's test of its timer compares real time with emulated time, and stops a guest whose host is busy.
quirks=
[ "$architecture" != x86_64 ] || quirks=no_timer_check

# These descriptors open both ends, so that no reader or writer waits for the other one to open the pipe.
mkfifo "$work/jobs" "$work/out"
exec 7<&0 8<>"$work/jobs" 9<>"$work/out"

# boot: runs the guest until it ends. `ended` is the status of QEMU. One processor, and programs that have the same
# addresses each time: both make QEMU translate less, and each halves what a script costs. A kernel without modules
# would otherwise create a dummy link that no script requested.
boot() {
    rm -f "$work/report" "$work/console"
    timeout -k 5 "$limit" "qemu-system-$architecture" \
        -accel "$accel" -machine "$board" -cpu "$processor" \
        -smp "${RDMA_INIT_VM_CPUS:-1}" -m "${RDMA_INIT_VM_MEMORY:-2048}" \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$cache/vmlinux" -initrd "$work/initramfs" \
        -append "console=$console rdinit=/init panic=-1 mitigations=off cryptomgr.notests norandmaps dummy.numdummies=0 $quirks" \
        -serial "file:$work/console" \
        -device virtio-serial-pci \
        -chardev stdio,id=jobs,signal=off \
        -device virtserialport,nr=1,chardev=jobs \
        -chardev "file,id=report,path=$work/report" \
        -device virtserialport,nr=2,chardev=report \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        "$@" \
        <&8 >&9 2>"$work/qemu" 7<&- 8>&- 9>&- &
    vm=$!
    ended=0
    wait "$vm" || ended=$?
    vm=
    touch "$work/report"
}

# log: prints the messages of QEMU and of the kernel.
log() {
    sed 's/^/vm qemu: /' "$work/qemu"
    [ ! -f "$work/console" ] || sed 's/^/vm kernel: /' "$work/console"
}

if [ -n "$job" ]; then
    printf '%s\noff\n' "$job" >&8
    # The last line is for this script.
    sed -u -n -e "s/^$token //" -e 't end' -e p -e b -e ': end' -e "w $work/status" -e q <"$work/out" 8>&- 9>&- &
    reader=$!
else
    cat <"$work/out" 8>&- 9>&- &
    reader=$!
    # The input also ends if the process that writes it is killed.
    (cat <&7 >&8; kill $$) >/dev/null 2>&1 9>&- &
    relay=$!
fi

boot "$@"
# An emulated kernel can fail while it boots on a busy machine, before anything of a script runs.
if [ "$ended" != 124 ] && [ "$ended" != 137 ] && ! grep -q . "$work/report"; then
    log | tail -n 40 >&2
    say 'the guest ended while it booted (see above), and is booted once more'
    boot "$@"
fi
exec 9>&-
wait "$reader" || :
read -r status _ 2>/dev/null <"$work/status" || status=
[ -z "$status" ] || exit "$status"
log | tail -n 60 >&2
if [ "$ended" = 124 ] || [ "$ended" = 137 ]; then
    if grep -q up "$work/report"; then
        say "$script was not done within $limit s (RDMA_INIT_VM_TIMEOUT)"
    else
        say "the guest was not up within $limit s (RDMA_INIT_VM_TIMEOUT)"
    fi
    exit 124
fi
die 'the guest ended by itself (see above)'
