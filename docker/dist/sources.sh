#!/bin/sh
# Downloads the source packages that the LGPL requires: docker/dist/sources.sh DIRECTORY NAME=VERSION... It
# has its own package lists, so the machine needs no deb-src line. DIST_MIRROR and DIST_SECURITY are other places of Debian's
# packages.
set -eu
mkdir -p "$1"
directory=$(cd "$1" && pwd -P)
shift
apt=$directory/apt
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
trap 'rm -rf "$apt"' EXIT
# shellcheck disable=SC1091
distribution=$(. /etc/os-release && echo "$ID $VERSION_CODENAME")
suite=${distribution#* }
case $distribution in
    "ubuntu "*)
        keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
        for pocket in "$suite" "$suite-updates" "$suite-security"; do
            echo "deb-src [signed-by=$keys] http://archive.ubuntu.com/ubuntu $pocket main universe"
        done
        ;;
    *)
        options=signed-by=/usr/share/keyrings/debian-archive-keyring.gpg
        # Only an archive of old packages has lists whose time may have passed.
        [ -z "${DIST_MIRROR:-}${DIST_SECURITY:-}" ] || options="$options check-valid-until=no"
        mirror=${DIST_MIRROR:-http://deb.debian.org/debian}
        echo "deb-src [$options] $mirror $suite main"
        echo "deb-src [$options] $mirror $suite-updates main"
        echo "deb-src [$options] ${DIST_SECURITY:-http://deb.debian.org/debian-security} $suite-security main"
        ;;
esac >"$apt/sources.list"
with() {
    apt-get -qq -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root \
        -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}
with update >/dev/null
for package; do
    (cd "$directory" && with source --download-only --only-source "$package" >/dev/null) || {
        echo "dist: the mirror no longer has the source of $package. Upgrade this machine's packages, build again, and make the release of that." >&2
        exit 1
    }
done
