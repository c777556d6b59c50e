#!/bin/sh
# Installs the .deb of target/dist in fresh root directories of the distributions in the README, runs the
# program there, and removes it. Afterwards each root has the same files as before, so it is kept in
# target/roots.
# tests/dist/install.sh [SUITE...]
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd -P)
[ $# -gt 0 ] || set -- bookworm trixie jammy noble
package=$(find "$here/target/dist" -name "rdma-init_*_$(dpkg --print-architecture).deb")
[ -n "$package" ] || { echo "there is no package in target/dist: make dist" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints the files of the root $1, except dpkg's own directory and its log, which record every installation.
files() {
    (cd "$1" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./rdma-init.deb \) -prune \
        -o -type d -printf '%P %m\n' -o -printf '%P %y %m %s\n') | sort
}

for suite; do
    root=$here/target/roots/$suite
    case $suite in
        bookworm | trixie) mirror=http://deb.debian.org/debian ring=debian-archive-keyring ;;
        *) mirror=http://archive.ubuntu.com/ubuntu ring=ubuntu-archive-keyring ;;
    esac
    if [ ! -e "$root" ]; then
        if [ ! -e "/usr/share/keyrings/$ring.gpg" ]; then
            # Debian 12 has no package with Ubuntu's keys.
            echo "$suite: SKIPPED, this machine has no /usr/share/keyrings/$ring.gpg (package ubuntu-keyring)"
            continue
        fi
        rm -rf "$root.new"
        mkdir -p "${root%/*}"
        debootstrap --variant=minbase --keyring="/usr/share/keyrings/$ring.gpg" "$suite" "$root.new" "$mirror" >"$work/log" ||
            { cat "$work/log" >&2; exit 1; }
        mv "$root.new" "$root"
    fi
    files "$root" >"$work/before"
    cp "$package" "$root/rdma-init.deb"
    chroot "$root" dpkg --install /rdma-init.deb >/dev/null
    chroot "$root" rdma-init --version
    chroot "$root" rdma-init plan --facts demo:cce-roce | grep -q 'NCCL_IB_HCA'
    # Not as PID 1, and without a state: the command runs, and no file remains in the root.
    code=0
    RDMA_INIT_STATE_DIR='' RDMA_INIT_WRITE_NCCL_CONF=false chroot "$root" rdma-init -- sh -c 'exit 42' 2>"$work/said" || code=$?
    [ "$code" = 42 ] || { cat "$work/said" >&2; echo "$suite: the command's exit code became $code" >&2; exit 1; }
    chroot "$root" dpkg --listfiles rdma-init | grep -q '/man1/rdma-init-plan.1.gz$'
    chroot "$root" dpkg --purge rdma-init >/dev/null
    rm "$root/rdma-init.deb"
    files "$root" >"$work/after"
    diff "$work/before" "$work/after" || { echo "$suite: the package leaves these files behind" >&2; exit 1; }
    echo "$suite: installed, run, and removed without a trace"
done
