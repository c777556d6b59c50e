#!/bin/sh
# Builds the last commit twice on this machine, as two users, in two directories, and with two CARGO_HOMEs,
# and compares the releases byte by byte: tests/dist/reproduce.sh [ARCHITECTURE...]
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd -P)
[ "$(id -u)" = 0 ] || { echo "only root can build as two users" >&2; exit 1; }
[ $# -gt 0 ] || set -- x86_64 aarch64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
rustup=${RUSTUP_HOME:-$HOME/.rustup}
tools=$(dirname "$(command -v cargo)")
registry=${CARGO_HOME:-$HOME/.cargo}/registry

# release NAME CLONE USER HOME ARCHITECTURE...: builds as a user that has a UID but no name, and then makes
# the release.
release() {
    name=$1 clone=$2 user=$3 home=$4
    shift 4
    git clone -q "$here" "$clone"
    mkdir -p "$home/registry"
    # Only the downloads are shared: the unpacked sources have paths that could affect the binary.
    for part in cache index; do cp -r "$registry/$part" "$home/registry/"; done
    [ ! -e "$here/target/libclang" ] || { mkdir "$clone/target" && cp -r "$here/target/libclang" "$clone/target/"; }
    chown -R "$user:$user" "$clone" "$home"
    for architecture; do
        sh "$here/tests/setup.sh" build "$architecture"
        if [ -e "$here/target/sysroot/$architecture" ]; then
            mkdir -p "$clone/target/sysroot"
            cp -r "$here/target/sysroot/$architecture" "$clone/target/sysroot/"
            chown -R "$user:$user" "$clone/target"
        fi
        (cd "$clone" && setpriv --reuid "$user" --regid "$user" --clear-groups env HOME="$home" CARGO_HOME="$home" \
            RUSTUP_HOME="$rustup" PATH="$tools:$PATH" make build ARCHITECTURE="$architecture")
    done
    epoch=$(git -C "$here" log -1 --format=%ct)
    (cd "$clone" && CARGO_HOME=$home SOURCE_DATE_EPOCH=$epoch DIST_WITHOUT_SOURCES=1 sh dist/dist.sh "$@") >"$work/$name"
}

release first "$work/one" 2001 "$work/cargo-one" "$@"
release second "$work/another/place/two" 2002 "$work/another/cargo" "$@"
diff "$work/first" "$work/second" || { echo "the second build has other bytes (see above)" >&2; exit 1; }
echo "two builds, the same bytes:"
cat "$work/first"
