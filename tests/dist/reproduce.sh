#!/bin/sh
# Builds the last commit a second time on this machine, after `make dist`: as another user, in another directory, with
# another CARGO_HOME. Compares the release with that of target/dist byte by byte: tests/dist/reproduce.sh [ARCHITECTURE...]
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd -P)
[ "$(id -u)" = 0 ] || { echo "only root can build as another user" >&2; exit 1; }
[ -z "$(git -C "$here" status --porcelain)" ] || { echo "$here has changes, so target/dist is not that of the last commit" >&2; exit 1; }
[ $# -gt 0 ] || set -- x86_64 aarch64
# Another user may not enter the directory that has root's Rust, so Rust gets another place, in a mount namespace.
if [ -z "${REPRODUCE_RUST:-}" ]; then
    REPRODUCE_RUST=$(cd "$here" && rustc --print sysroot)
    export REPRODUCE_RUST
    exec unshare --mount sh "$0" "$@"
fi
work=$(mktemp -d)
# The directory of Rust is a mount: it goes first.
trap 'umount -q "$work/rust" || true; rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
clone=$work/another/place/rdma-init home=$work/another/cargo user=2002
rust=$work/rust
registry=${CARGO_HOME:-$HOME/.cargo}/registry

mkdir -p "$home/registry" "$rust"
mount --bind "$REPRODUCE_RUST" "$rust"
git clone -q "$here" "$clone"
# The downloads are shared: unpacked sources have the paths that count.
for part in cache index; do cp -r "$registry/$part" "$home/registry/"; done
[ ! -e "$here/target/libclang" ] || { mkdir "$clone/target" && cp -r "$here/target/libclang" "$clone/target/"; }
for architecture; do
    if [ -e "$here/target/sysroot/$architecture" ]; then
        mkdir -p "$clone/target/sysroot"
        cp -r "$here/target/sysroot/$architecture" "$clone/target/sysroot/"
    fi
done
chown -R "$user:$user" "$clone" "$home"
# A user who has a number and no name.
for architecture; do
    (cd "$clone" && setpriv --reuid "$user" --regid "$user" --clear-groups env HOME="$home" CARGO_HOME="$home" \
        PATH="$rust/bin:$PATH" make build ARCHITECTURE="$architecture")
done
epoch=$(git -C "$here" log -1 --format=%ct) commit=$(git -C "$here" rev-parse HEAD)
(cd "$clone" && CARGO_HOME=$home SOURCE_DATE_EPOCH=$epoch SOURCE_COMMIT=$commit DIST_WITHOUT_SOURCES=1 sh docker/dist/dist.sh "$@") >"$work/second"
grep -v ' sources/' "$here/target/dist/SHA256SUMS" >"$work/first"
diff "$work/first" "$work/second" || {
    kept=$here/target/dist-second
    rm -rf "$kept" && cp -r "$clone/target/dist" "$kept"
    echo "the second build has other bytes (see above); it is kept in $kept" >&2
    exit 1
}
echo "two builds, the same bytes:"
cat "$work/first"
