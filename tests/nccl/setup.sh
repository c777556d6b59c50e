#!/bin/sh
# Makes sure that target/nccl has the NCCL libraries in tests/nccl/versions, or those that RDMA_INIT_TEST_NCCL names, and
# the driver that runs them.
#
#     tests/nccl/setup.sh           makes both
#     tests/nccl/setup.sh build     builds only the driver, if its sources are newer
#
# With RDMA_INIT_TEST_NCCL_ARCHITECTURE=aarch64, the directory is target/nccl-aarch64, with the libraries
# of tests/nccl/versions-aarch64, and the driver is for QEMU.
#
# An existing library is kept. If a download was interrupted, the next run downloads the library again.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
repository=$(cd "$here/../.." && pwd -P)
architecture=${RDMA_INIT_TEST_NCCL_ARCHITECTURE:-}
cache=$repository/target/nccl${architecture:+-$architecture}
versions=$here/versions${architecture:+-$architecture}
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

say() { echo "nccl setup: $*" >&2; }

# compile RESULT ARGUMENT...: compiles a file and moves it to its place atomically, because a test may be
# running.
compile() {
    result=$cache/build/$1
    shift
    [ -e "$result" ] && [ -z "$(find "$here/driver" "$here/env" "$here/ras" "$here/verbs" "$0" -newer "$result")" ] && return 0
    # -U_FORTIFY_SOURCE disables the header's own versions of functions that the driver replaces.
    # shellcheck disable=SC2086
    $compiler -O1 -Wall -Wextra -D_GNU_SOURCE -U_FORTIFY_SOURCE -o "$result.$$" "$@"
    mv "$result.$$" "$result"
}

build() {
    mkdir -p "$cache/build"
    compiler=gcc
    if [ -n "$architecture" ]; then
        # QEMU's program loads libc6 and the following packages.
        sh "$here/../sysroot.sh" "$architecture" libc6-dev linux-libc-dev libc6 libgcc-s1 libstdc++6
        root=$repository/target/sysroot/$architecture
        compiler="$architecture-linux-gnu-gcc --sysroot=$root -B$root/usr/lib/$architecture-linux-gnu"
    fi
    compile driver -rdynamic "$here"/driver/*.c -ldl
    compile libnccl-env-test.so -shared -fPIC "$here/env/plugin.c"
    # The ranks of RAS have no GPU, so this replaces functions of NCCL with x86-64 instructions.
    [ -n "$architecture" ] || [ "$(uname -m)" != x86_64 ] || compile ras "$here"/ras/*.c -ldl
    compile env-client "$here/env/client.c" -ldl -lpthread
    for name in ibverbs mlx5; do
        compile "lib$name.so.1" -shared -fPIC -Wl,-soname,"lib$name.so.1" \
            -Wl,--version-script="$here/verbs/$name.map" "$here/verbs/$name"*.c
        # NCCL tries this name first.
        [ -e "$cache/build/lib$name.so" ] || ln -s "lib$name.so.1" "$cache/build/lib$name.so"
    done
}

install_pip() {
    python3 -m pip --version >/dev/null 2>&1 && return 0
    say "installing python3-pip"
    apt_install() {
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-pip >&2
    }
    apt_install 2>/dev/null || { $sudo apt-get update -qq >&2; apt_install; }
}

# Extracts the library from the wheel for PyTorch, which exists for each version.
fetch() {
    folder=$cache/$1
    wheels=$folder/wheel
    say "fetching NCCL $1"
    rm -rf "$wheels"
    mkdir -p "$wheels"
    set -- "nvidia-nccl-cu12==$1"
    for glibc in _2_28 _2_27 _2_18 _2_17 2014 1; do
        set -- --platform "manylinux${glibc}_${architecture:-$(uname -m)}" "$@"
    done
    python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps \
        --only-binary :all: --dest "$wheels" "$@" >&2
    python3 -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open("nvidia/nccl/lib/libnccl.so.2") as library:
    shutil.copyfileobj(library, open(sys.argv[2], "wb"), 1 << 20)' \
        "$wheels"/*.whl "$folder/partial"
    mv "$folder/partial" "$folder/libnccl.so.2"
    rm -r "$wheels"
}

case ${1:-} in
    build) build ;;
    fetch) fetch "$2" ;;
    '')
        build
        case ${RDMA_INIT_TEST_NCCL:-all} in
            all) wanted=$(cat "$versions") ;;
            *) wanted=$RDMA_INIT_TEST_NCCL ;;
        esac
        missing=$(for version in $wanted; do
            [ -e "$cache/$version/libnccl.so.2" ] || echo "$version"
        done)
        [ -n "$missing" ] || exit 0
        install_pip
        echo "$missing" | xargs -n 1 -P 2 sh "$0" fetch
        ;;
    *) echo "usage: $0 [build]" >&2; exit 2 ;;
esac
