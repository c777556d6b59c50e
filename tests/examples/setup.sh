#!/bin/sh
# Makes sure that what the examples are tried with is there, and says where, in lines NAME=VALUE:
#
#   tests/examples/setup.sh manifests    PYTHON, with Kubernetes' schemas
#   tests/examples/setup.sh images       DEBIAN and RUST, images to build on
#   tests/examples/setup.sh              both
#
# No registry is asked. The images are Debian's by debootstrap, with the certificates of this
# machine; RUST, which stands in for rust:1-bookworm, has the Rust of this machine as well. They
# stay, as what is built on them: `docker rmi $(docker images
# --format '{{.Repository}}:{{.Tag}}' rdma-init-examples)` removes them.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
cache=$(cd "$here/../.." && pwd -P)/target/examples
suite=bookworm
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

# An administrator's programs may be outside a user's search path.
PATH=$PATH:/usr/sbin:/sbin

say() { echo "examples setup: $*" >&2; }

# install PROGRAM PACKAGE: tries the package lists that are there first.
install() {
    command -v "$1" >/dev/null && return 0
    say "installing $2"
    apt_install() {
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$1" >/dev/null
    }
    apt_install "$2" 2>/dev/null || { $sudo apt-get update -qq >&2; apt_install "$2" >&2; }
}

# Test programs that run at once must not make the same things.
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

manifests() {
    wanted=$(cksum <"$here/requirements.txt" | tr ' ' -)
    venv=$cache/venv
    # Written last: an installation that was cut off is made anew.
    if ! [ -e "$venv/complete-$wanted" ]; then
        say "installing Kubernetes' schemas in target/examples"
        make_venv() { rm -rf "$venv"; python3 -m venv "$venv" >/dev/null 2>&1; }
        make_venv || { install pyvenv python3-venv; make_venv; }
        pip() { "$venv/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$@" >&2; }
        pip --requirement "$here/requirements.txt"
        # Its models are read as text: what it depends on is not needed.
        pip --no-deps kubeflow-training==1.9.4
        touch "$venv/complete-$wanted"
    fi
    echo "PYTHON=$venv/bin/python"
}

# import IMAGE FOLDER: a root file system.
import() {
    $sudo tar -C "$2" -c . | docker import --message rdma-init-examples \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$1" >/dev/null
}

has() { docker image inspect "$1" >/dev/null 2>&1; }

images() {
    host=$(sh "$here/../docker/setup.sh")
    [ -z "$host" ] || export "${host?}"
    certificates=/etc/ssl/certs/ca-certificates.crt
    sysroot=$(rustc --print sysroot)
    marks=$( { cat $certificates 2>/dev/null; rustc --version; echo 1; } | cksum | cut -d ' ' -f 1)
    debian=rdma-init-examples:debian-$marks
    rust=rdma-init-examples:rust-$marks
    if ! has "$debian" || ! has "$rust"; then
        install debootstrap debootstrap
        root=$cache/root
        $sudo rm -rf "$root"
        say "making images of Debian $suite"
        $sudo debootstrap --variant=minbase --include=ca-certificates $suite "$root" \
            http://deb.debian.org/debian >"$cache/debootstrap.log" 2>&1 || {
            tail -n 5 "$cache/debootstrap.log" >&2
            exit 1
        }
        $sudo rm -f "$root"/var/cache/apt/archives/*.deb
        [ ! -e $certificates ] || $sudo cp $certificates "$root$certificates"
        import "$debian" "$root"
        # What is in the official image, too.
        $sudo chroot "$root" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
            apt-get install -qq -y --no-install-recommends gcc libc6-dev make pkg-config file' >/dev/null 2>&1
        $sudo rm -f "$root"/var/cache/apt/archives/*.deb
        $sudo mkdir -p "$root/usr/local/lib/rustlib"
        $sudo cp "$sysroot/bin/rustc" "$sysroot/bin/cargo" "$root/usr/local/bin"
        $sudo cp -a "$sysroot"/lib/librustc_driver-* "$sysroot"/lib/libLLVM* "$root/usr/local/lib"
        $sudo cp -a "$sysroot/lib/rustlib/x86_64-unknown-linux-gnu" "$root/usr/local/lib/rustlib"
        import "$rust" "$root"
        $sudo rm -rf "$root"
        # Those of another Rust, or with other certificates.
        docker images --format '{{.Repository}}:{{.Tag}}' rdma-init-examples |
            grep -E ':(debian|rust)-' | grep -vxF -e "$debian" -e "$rust" |
            xargs -r docker rmi --no-prune >/dev/null || :
    fi
    echo "DEBIAN=$debian"
    echo "RUST=$rust"
}

case ${1:-} in
    manifests) manifests ;;
    images) images ;;
    '') manifests; images ;;
    *) echo "usage: $0 [manifests|images]" >&2; exit 2 ;;
esac
