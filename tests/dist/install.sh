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

debian=/usr/share/keyrings/debian-archive-keyring.gpg
case $(dpkg --print-architecture) in
    amd64) ubuntu=http://archive.ubuntu.com/ubuntu ;;
    *) ubuntu=http://ports.ubuntu.com/ubuntu-ports ;;
esac

# Prints the path of Ubuntu's keys: those of this machine, or those of Debian 13's package, as Debian 12 has none. apt gets
# lists of its own for it.
ubuntu_keys() {
    keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    if [ ! -e "$keys" ]; then
        mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
        : >"$work/apt/status"
        echo "deb [signed-by=$debian] http://deb.debian.org/debian trixie main" >"$work/apt/sources.list"
        (cd "$work/apt" && for step in update 'download ubuntu-keyring'; do
            # shellcheck disable=SC2086
            apt-get -qq -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt" \
                -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=- -o Acquire::Languages=none \
                -o APT::Sandbox::User=root $step >&2
        done)
        dpkg-deb -x "$work"/apt/ubuntu-keyring_*.deb "$work/apt/ring"
        keys=$work/apt/ring$keys
    fi
    echo "$keys"
}

# The loop sets the arguments of debootstrap.
suites=$*
for suite in $suites; do
    root=$here/target/roots/$suite
    if [ ! -e "$root" ]; then
        rm -rf "$root.new"
        mkdir -p "${root%/*}"
        case $suite in
            bookworm | trixie) set -- "$debian" "$suite" "$root.new" http://deb.debian.org/debian ;;
            # The script is named, as Debian 12 knows none for Ubuntu 24.04. All of Ubuntu's releases have this one.
            *) set -- "$(ubuntu_keys)" "$suite" "$root.new" "$ubuntu" /usr/share/debootstrap/scripts/gutsy ;;
        esac
        keys=$1
        shift
        debootstrap --variant=minbase --keyring="$keys" "$@" >"$work/log" || { cat "$work/log" >&2; exit 1; }
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
