#!/bin/sh
# Installs what the build (`setup.sh build`), the tests (`setup.sh test`) or the
# benchmark (`setup.sh bench`) need on Debian and Ubuntu, and only what is missing.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

# The packages among these that are not installed.
missing() {
    for package; do
        dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok' || echo "$package"
    done
}

install() {
    packages=$(missing "$@")
    [ -n "$packages" ] || return 0
    echo "installing" $packages
    # The package lists of a fresh machine are empty, those of an old one stale.
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages >/dev/null 2>&1 || {
        $sudo apt-get update -qq
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages >/dev/null
    }
}

rust() {
    command -v cargo >/dev/null && return 0
    install rustup 2>/dev/null && rustup default stable && return 0
    echo "Rust 1.88 or later is needed: see https://rustup.rs" >&2
    exit 1
}

build() {
    command -v dpkg-query >/dev/null || {
        echo "not Debian or Ubuntu: install Rust, pkg-config, file, and the static libraries and headers of rdma-core, libnl and libclang yourself" >&2
        return 0
    }
    install gcc libc6-dev pkg-config file libclang-dev \
        libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev
    rust
}

case ${1:-} in
    build) build ;;
    test)
        build
        install util-linux procps perl strace tini openmpi-bin libibverbs1 ibverbs-providers groff-base zsh fish \
            debootstrap openssh-client shellcheck
        sh "$here/vm/setup.sh"
        sh "$here/docker/setup.sh"
        sh "$here/nccl/setup.sh"
        sh "$here/examples/setup.sh" >/dev/null
        ;;
    bench) install tini dumb-init catatonit ;;
    *) echo "usage: $0 build|test|bench" >&2; exit 2 ;;
esac
