#!/bin/sh
# Makes target/dist, the files of a release, from the binaries of `make build`:
#
#     docker/dist/dist.sh ARCHITECTURE...
#
# The same commit gives the same bytes if the packages match BUILDINFO. Timestamps are those of the commit, or
# SOURCE_DATE_EPOCH; SOURCE_COMMIT is for a checkout of another user, which git does not read.
set -eu
export LC_ALL=C TZ=UTC
umask 022
cd "$(dirname "$0")/../.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
if [ -z "${SOURCE_COMMIT:-}" ]; then
    SOURCE_COMMIT=$(git rev-parse HEAD)
    [ -z "$(git status --porcelain)" ] || SOURCE_COMMIT="$SOURCE_COMMIT with changes"
fi
export SOURCE_DATE_EPOCH SOURCE_COMMIT
out=target/dist
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d "$PWD/target/dist.XXXXXX")
trap 'rm -rf "$work"' EXIT

# archive NAME: writes the directory NAME of $work as a tar file to standard output.
archive() {
    tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        -c -C "$work" "$1"
}

# Man pages and completions are the same for all architectures.
sh tests/manual.sh "target/$(uname -m)-unknown-linux-gnu/release/rdma-init" "$work/manual"

platforms=
for architecture; do
    case $architecture in
        x86_64) debian=amd64 ;;
        aarch64) debian=arm64 ;;
        *) echo "dist: there is no release for $architecture" >&2; exit 1 ;;
    esac
    platforms="$platforms $debian:$architecture"
    built=target/$architecture-unknown-linux-gnu/release
    name=rdma-init-$version-$architecture
    tree=$work/$name
    mkdir -p "$tree/man" "$tree/completions"
    python3 docker/dist/inventory.py "$architecture" "$built/rdma-init.map" "$tree" >>"$work/sources"
    cp LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md "$tree"
    cp "$work"/manual/*.1 "$tree/man"
    cp "$work"/manual/*rdma-init.bash "$work"/manual/_rdma-init "$work"/manual/rdma-init.fish "$tree/completions"
    [ "$(tail -c 16 "$built/rdma-init")" = rdma-init:notice ] || { echo "dist: $built/rdma-init has no notices" >&2; exit 1; }
    install -m 755 "$built/rdma-init" "$tree/rdma-init"
    # The newest output of the build script belongs to this binary.
    plugin=$(find "$built/build" -path '*/rdma-init-*/out/libnccl-env.so' -printf '%T@ %p\n' | sort -n | tail -n 1)
    install -m 644 "${plugin#* }" "$tree/libnccl-env.so"
    cp "$tree/sbom.cdx.json" "$out/$name.sbom.cdx.json"
    cp "$tree/BUILDINFO" "$out/$name.BUILDINFO"
    archive "$name" | gzip -9n >"$out/$name.tar.gz"
    sh docker/dist/deb.sh "$tree" "$version" "$debian" "$work/deb" "$out/rdma-init_${version}_$debian.deb"
done

# An archive from buildah contains the time of its creation, but a directory does not.
PLATFORMS=$platforms sh docker/image.sh "oci:$work/rdma-init-$version-image:$version" target >/dev/null
(cd "$work/rdma-init-$version-image" && tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mode=a+rX,go-w \
    --mtime="@$SOURCE_DATE_EPOCH" -c ./*) >"$out/rdma-init-$version-image.tar"

if [ -z "${DIST_WITHOUT_SOURCES:-}" ]; then
    # shellcheck disable=SC2046
    sh docker/dist/sources.sh "$out/sources" $(sort -u "$work/sources")
fi
(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >"$work/SHA256SUMS")
mv "$work/SHA256SUMS" "$out/SHA256SUMS"
cat "$out/SHA256SUMS"
