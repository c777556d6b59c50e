#!/bin/sh
# Builds the last commit a second time, after `make release`: in the same root directory, as another user, in another
# directory, with another CARGO_HOME. Compares the release with that of target/dist byte by byte:
# tests/dist/reproduce.sh ROOT [ARCHITECTURE...]
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd -P)
[ -z "$(git -C "$here" status --porcelain)" ] || { echo "$here has changes, so target/dist is not that of the last commit" >&2; exit 1; }
root=$1
shift
[ $# -gt 0 ] || set -- x86_64 aarch64
second=$here/target/dist-second
# A user who has a number and no name.
DIST_WITHOUT_SOURCES=1 sh "$here/docker/dist/root.sh" build "$root" 2002 /another/place/rdma-init /another/cargo "$second" "$@"
sums() { grep -v ' sources/' "$here/target/$1/SHA256SUMS"; }
sums dist >"$here/target/dist-sums"
sums dist-second | diff "$here/target/dist-sums" - || {
    echo "the second build has other bytes (see above); it is kept in $second" >&2
    exit 1
}
rm -rf "$second"
echo "two builds, the same bytes:"
cat "$here/target/dist-sums"
