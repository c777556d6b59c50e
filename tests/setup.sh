#!/bin/sh
# Installs what the build (`setup.sh build`, or `setup.sh build ARCHITECTURE`), the tests (`setup.sh test`),
# the benchmark (`setup.sh bench`), the order of functions (`setup.sh order`), the image (`setup.sh image`),
# or the test of a release (`setup.sh dist`) need on Debian 12, Ubuntu 22.04, and later versions. It
# installs only what is missing.
set -eu
# This script parses the output of apt-get, which must be in English.
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd -P)
repository=$(dirname "$here")

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

is_root() { [ "$(id -u)" = 0 ]; }
may_become_root() { is_root || command -v sudo >/dev/null; }
as_root() { if is_root; then "$@"; else sudo "$@"; fi; }

# apt WORD...: runs apt-get as root. It waits for another apt, which may be running on a machine that has
# just booted.
apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

# Prints which of these packages are not installed.
missing() {
    for package; do
        # shellcheck disable=SC2016
        dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok' || echo "$package"
    done
}

install() {
    packages=$(missing "$@" | tr '\n' ' ')
    packages=${packages% }
    [ -n "$packages" ] || return 0
    may_become_root || die "only root can install what is missing, and there is no sudo. Run this as root, then try again:
    apt-get update && apt-get install --no-install-recommends $packages"
    say "installing $packages"
    # The package lists of a fresh machine are empty, and those of an old one are outdated, so the second
    # try updates them.
    # shellcheck disable=SC2086
    apt install -y --no-install-recommends $packages >/dev/null 2>&1 || {
        apt update && apt install -y --no-install-recommends $packages >/dev/null
    } || die "cannot install $packages (see above)"
}

# --- Rust -----------------------------------------------------------------------------------

# Returns whether the first cargo and rustc in the PATH can build this project.
is_recent() {
    for program in cargo rustc; do
        version=$(cd "$repository" && "$program" --version 2>/dev/null) || return 1
        version=${version#* }
        printf '%s\n' "$needed" "${version%% *}" | sort -VC || return 1
    done
}

rust() {
    needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$repository/Cargo.toml")
    [ -n "$needed" ] || die "Cargo.toml does not say which Rust it needs"
    # A shell that was started before rustup was installed does not have it in its PATH.
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    is_recent && return 0
    found=$(rustc --version 2>/dev/null) || found=
    say "Rust $needed or later is needed, and ${found:-none} is here"
    if ! command -v rustup >/dev/null && ! rustup_of_distribution; then
        rustup_of_rust_lang
    fi
    hash -r
    is_recent || toolchain
    is_recent || die "Rust $needed or later is needed, and $(command -v rustc || echo rustc) is $(rustc --version 2>&1 | head -n 1). Take it out of the PATH, or unset RUSTUP_TOOLCHAIN."
}

# Installs the rustup of Debian 13 or Ubuntu 24.04. That package conflicts with the distribution's own
# cargo. If cargo is installed, it stays, and this fails.
rustup_of_distribution() {
    may_become_root || return 1
    simulated=$(apt-get -s install rustup 2>/dev/null) || {
        apt update && simulated=$(apt-get -s install rustup 2>/dev/null)
    } || return 1
    case $simulated in *"Remv "*) return 1 ;; esac
    install rustup
}

# Installs Rust with the installer from rust-lang.org, in a fixed version and with its published checksum:
# https://static.rust-lang.org/rustup/archive/VERSION/HOST/rustup-init.sha256
rustup_of_rust_lang() {
    version=1.28.2
    case $(uname -m) in
        x86_64) sum=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c ;;
        aarch64) sum=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c ;;
        *) die "install Rust $needed or later yourself: see https://rustup.rs" ;;
    esac
    # Only the test of this script uses another installer.
    sum=${RDMA_INIT_TEST_RUSTUP_SHA256:-$sum}
    # RUSTUP_UPDATE_ROOT is rustup's own variable for a mirror.
    from=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}
    url=$from/archive/$version/$(uname -m)-unknown-linux-gnu/rustup-init
    command -v curl >/dev/null || command -v wget >/dev/null || install curl
    say "installing Rust for this user alone, in ${CARGO_HOME:-$HOME/.cargo} and ${RUSTUP_HOME:-$HOME/.rustup}, with rustup $version from $url"
    mkdir -p "$repository/target"
    # The directory is not in /tmp, because some machines do not allow programs in /tmp to run.
    folder=$(mktemp -d "$repository/target/rustup.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    if command -v curl >/dev/null; then
        curl -fsSL --retry 3 -o "$folder/rustup-init" "$url"
    else
        wget -q -O "$folder/rustup-init" "$url"
    fi || die "cannot fetch $url. Where a mirror can be reached, name it in RUSTUP_UPDATE_ROOT and RUSTUP_DIST_SERVER."
    fetched=$(sha256sum <"$folder/rustup-init")
    [ "${fetched%% *}" = "$sum" ] ||
        die "what $url sent is not rustup $version: its SHA-256 is ${fetched%% *}, not $sum. It was not run."
    chmod +x "$folder/rustup-init"
    # If the distribution's Rust is too old, it stays, and rustup must not complain about it.
    RUSTUP_INIT_SKIP_PATH_CHECK=yes "$folder/rustup-init" -q -y --no-modify-path --profile minimal \
        -c clippy -c rustfmt --default-toolchain stable >/dev/null || die "rustup could not install Rust (see above)"
    rm -rf "$folder"
    say "Rust is installed. For a shell of yours: . ${CARGO_HOME:-$HOME/.cargo}/env"
}

# Downloads a toolchain for a rustup that has none, or only an older one.
toolchain() {
    say "rustup fetches the stable toolchain"
    # A distribution's rustup fails when it tries to update itself.
    rustup toolchain install stable --no-self-update --profile minimal -c clippy -c rustfmt || die "rustup could not install it (see above)"
    # If the user has chosen a default toolchain, it stays.
    rustup default >/dev/null 2>&1 || rustup default stable
    is_recent || rustup override set stable --path "$repository"
}

# Downloads the standard library for the architecture $1 with rustup; for a Rust from the distribution,
# prints the distribution's package that contains it.
standard_library() {
    # The directory of the toolchain that applies in this directory.
    folder=$(cd "$repository" && rustc --print sysroot)/lib/rustlib
    [ ! -d "$folder/$1-unknown-linux-gnu" ] || return 0
    if command -v rustup >/dev/null; then
        say "rustup fetches the standard library for $1"
        (cd "$repository" && rustup target add "$1-unknown-linux-gnu" >&2) ||
            die "rustup could not fetch it (see above)"
        return 0
    fi
    # `libstd-rust-dev:amd64: /usr/lib/rustlib/...`
    package=$(dpkg-query -S "$folder/$(uname -m)-unknown-linux-gnu/lib/libstd-*.rlib" 2>/dev/null | head -n 1)
    package=${package%%:*}
    [ -n "$package" ] ||
        die "$(command -v rustc) is neither of rustup nor of a package, and has no standard library for $1 in $folder. Put the one of the very same version there, or install a Rust of https://rustup.rs."
    # This rustc can only use exactly the same version of the library.
    # shellcheck disable=SC2016
    echo "$package=$(dpkg-query -W -f '${Version}' "$package")"
}

# --- What is needed for what ----------------------------------------------------------------

# Prints Debian's name for the architecture $1.
debian_name() {
    case $1 in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        *) die "this does not build for $1: for x86_64 and aarch64 alone" ;;
    esac
}

# Installs what a build for the architecture $1, which is not this machine's, also needs: a compiler, QEMU
# to run the result, and the libraries.
cross() {
    command -v dpkg-query >/dev/null || die "only Debian and Ubuntu have what the build for $1 needs"
    install "gcc-$(echo "$1" | tr _ -)-linux-gnu" qemu-user-static
    library=$(standard_library "$1")
    # The env plugin, which is a shared object, needs libc6 itself. No version contains a space.
    # shellcheck disable=SC2086
    sh "$here/sysroot.sh" "$1" libc6-dev linux-libc-dev libibverbs-dev librdmacm-dev libnl-3-dev \
        libnl-route-3-dev libc6 $library
}

build() {
    command -v dpkg-query >/dev/null || {
        say "this is neither Debian nor Ubuntu: install Rust, pkg-config, file, and the static libraries and headers of rdma-core, libnl and libclang yourself"
        return 0
    }
    # shellcheck disable=SC2016
    libc=$(dpkg-query -W -f '${Version}' libc6)
    dpkg --compare-versions "$libc" ge 2.34 ||
        die "this distribution is too old (libc6 $libc): Debian 12 or Ubuntu 22.04 or later can build this. With Docker, any machine can: docker build -f docker/Dockerfile -t rdma-init ."
    install gcc libc6-dev pkg-config file libclang-dev ca-certificates \
        libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev
    libclang
    rust
}

# rdma-sys reads the header of libibverbs with a bindgen that supports libclang up to version 15. Debian 13
# and Ubuntu 24.04 have a newer one. In this case, the last suitable libclang comes from PyPI; only the
# build uses it, through the Makefile.
libclang() {
    newest=0
    for folder in "${RDMA_INIT_TEST_LLVM:-/usr/lib}"/llvm-*/lib; do
        version=${folder%/lib}
        version=${version##*llvm-}
        case $version in *[!0-9]*) continue ;; esac
        if [ "$version" -gt "$newest" ]; then newest=$version; fi
    done
    place=$repository/target/libclang
    if [ "$newest" -le 15 ] || [ -e "$place/libclang.so" ]; then return 0; fi
    install python3 python3-pip
    say "fetching libclang 14 from PyPI into target/libclang, as rdma-sys does not build with libclang $newest"
    mkdir -p "$place"
    # The two checksums are for x86-64 and for arm64.
    cat >"$place/requirement" <<-END
	libclang==14.0.6 \
	    --hash=sha256:206d2789e4450a37d054e63b70451a6fc1873466397443fa13de2b3d4adb2796 \
	    --hash=sha256:e2add1703129b2abe066fb1890afa880870a89fd6ab4ec5d2a7a8dc8d271677e
	END
    python3 -m pip download -q --no-deps --only-binary=:all: -d "$place" --require-hashes -r "$place/requirement" ||
        die "pip could not fetch libclang 14 (see above)"
    python3 -m zipfile -e "$place"/libclang-*.whl "$place"
    mv "$place"/libclang-*.data/platlib/clang/native/libclang.so "$place/"
    rm -rf "$place"/libclang-*
}

case ${1:-} in
    build)
        build
        [ "${2:-$(uname -m)}" = "$(uname -m)" ] || cross "$2"
        ;;
    test)
        build
        install util-linux procps perl strace tini openmpi-bin libibverbs1 ibverbs-providers groff-base zsh fish \
            debootstrap openssh-client shellcheck curl e2fsprogs xfsprogs nftables valgrind libc6-dbg
        sh "$here/vm/setup.sh"
        # If all is wanted, the tests of the watcher boot this one, too.
        [ "$(uname -m)" != x86_64 ] || [ -z "${RDMA_INIT_TEST_ALL:-}" ] ||
            RDMA_INIT_VM_MACHINE=x86_64-6.12 sh "$here/vm/setup.sh"
        sh "$here/docker/setup.sh"
        sh "$here/nccl/setup.sh"
        sh "$here/examples/setup.sh" >/dev/null
        ;;
    bench) install tini dumb-init catatonit dash bash iproute2 gcc strace ;;
    order)
        sh "$0" bench
        install valgrind python3
        ;;
    image) install buildah ;;
    dist)
        install util-linux diffutils debootstrap debian-archive-keyring
        ;;
    *) echo "usage: $0 build [ARCHITECTURE]|test|bench|order|image|dist" >&2; exit 2 ;;
esac
