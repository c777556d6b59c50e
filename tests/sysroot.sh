#!/bin/sh
# Makes target/sysroot/ARCHITECTURE: unpacked packages of this distribution for another architecture. It
# needs neither root nor a package manager that is configured for that architecture, and changes nothing
# outside that directory.
#
#   tests/sysroot.sh aarch64 PACKAGE[=VERSION]...
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd -P)
architecture=$1
shift
root=$repository/target/sysroot/$architecture
# The list of unpacked packages. Names are enough, because packages are never removed.
have=$root/packages
apt=$repository/target/sysroot/apt-$architecture

say() { echo "setup: $*" >&2; }

case $architecture in
    x86_64) name=amd64 archive=http://archive.ubuntu.com/ubuntu ;;
    aarch64) name=arm64 archive=http://ports.ubuntu.com/ubuntu-ports ;;
    *) say "there are no packages for $architecture"; exit 1 ;;
esac

missing=
for package; do
    grep -qsxF "$package" "$have" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

# with WORD...: runs apt-get for that architecture, with separate lists and a separate cache.
with() {
    apt-get -qq -o "APT::Architecture=$name" -o "APT::Architectures=$name" -o "Dir::State=$apt/state" \
        -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root \
        -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$root"
: >"$apt/status"

# Debian has all architectures in one archive. Ubuntu splits them into two.
# shellcheck disable=SC1090,SC1091
distribution=$(. "${RDMA_INIT_TEST_OS_RELEASE:-/etc/os-release}" && echo "$ID $VERSION_CODENAME")
case $distribution in
    "ubuntu "*)
        for suite in "${distribution#* }" "${distribution#* }-updates" "${distribution#* }-security"; do
            echo "deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] $archive $suite main universe"
        done >"$apt/sources.list"
        set -- -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        ;;
    *) set -- ;;
esac

say "fetching for $architecture:$missing"
with "$@" update >/dev/null || { say "cannot fetch the package lists for $name (see above)"; exit 1; }
# shellcheck disable=SC2086
(cd "$apt" && with "$@" download $missing >/dev/null) || {
    say "cannot fetch the packages for $name (see above)"
    exit 1
}
for package in "$apt"/*.deb; do
    dpkg-deb -x "$package" "$root"
done
# The list is updated only now, so that the next run downloads interrupted packages again.
echo "$missing" | tr ' ' '\n' >>"$have"
rm -rf "$apt"
