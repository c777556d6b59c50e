#!/bin/sh
# Builds a release in a root directory of its own: a fresh Debian that has the packages of the build and nothing else. The
# bytes then depend on the commit, on Rust, and on the packages that BUILDINFO lists, but on no other package of this machine.
#
#     docker/dist/root.sh make ROOT ARCHITECTURE...
#     docker/dist/root.sh build ROOT USER PLACE HOME OUT ARCHITECTURE...
#
# `make` installs Debian, and what the build of the last commit needs, in the directory ROOT. `build` clones the last commit into
# PLACE, a path in ROOT, builds it as the user with the number USER, with CARGO_HOME at HOME, and puts the files of the release
# in OUT. It installs nothing, so that several builds in one ROOT have the same packages. This machine lends Rust and the
# downloads of the crates.
#
#   DIST_SUITE      the release of Debian (bookworm)
#   DIST_MIRROR     where its packages are (http://deb.debian.org/debian)
#   DIST_SECURITY   the same for its security updates (http://deb.debian.org/debian-security)
#   DIST_PINS       the BUILDINFO of a release that was made this way: `make` installs its versions, or fails
set -eu
export LC_ALL=C
umask 022
here=$(cd "$(dirname "$0")/../.." && pwd -P)
suite=${DIST_SUITE:-bookworm}
mirror=${DIST_MIRROR:-http://deb.debian.org/debian}
security=${DIST_SECURITY:-http://deb.debian.org/debian-security}
keys=/usr/share/keyrings/debian-archive-keyring.gpg

die() { echo "root: $*" >&2; exit 1; }

# enter DIRECTORY USER COMMAND...: runs a command in this directory of the root, with an environment of its own.
enter() {
    directory=$1 user=$2
    shift 2
    # shellcheck disable=SC2016
    env -i LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME="${home:-/root}" ${home:+"CARGO_HOME=$home" CARGO_NET_OFFLINE=true} \
        ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} ${no_proxy:+"no_proxy=$no_proxy"} \
        ${DIST_MIRROR:+"DIST_MIRROR=$DIST_MIRROR"} ${DIST_SECURITY:+"DIST_SECURITY=$DIST_SECURITY"} \
        ${DIST_WITHOUT_SOURCES:+"DIST_WITHOUT_SOURCES=$DIST_WITHOUT_SOURCES"} \
        DIST_ALL_PACKAGES=1 SOURCE_DATE_EPOCH="${epoch:-}" SOURCE_COMMIT="${commit:-}" \
        chroot --userspec="$user:$user" --groups='' "$root" sh -c 'cd "$1" && shift && exec "$@"' sh "$directory" "$@"
}

# Makes the root ready for `enter`, in the mount namespace of this process. buildah asks that / is a mount.
mounts() {
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mkdir -p "$root/usr/local/rust"
    mount --bind "$rust" "$root/usr/local/rust"
    mount -o remount,bind,ro "$root/usr/local/rust"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
}

# Finds the Rust of this machine, in $rust.
find_rust() {
    rust=$(cd "$here" && rustc --print sysroot)
    # Its directory hides no other program of the root.
    [ "$rust" != /usr ] || die "$(command -v rustc) is the distribution's: build with a Rust of rustup"
}

# listed SECTION FILE: prints NAME VERSION for each package in this section of a BUILDINFO.
listed() { sed -n "/^$1:\$/,/^[^ ]/s/^ \([^ :]*\)[^ ]* (= \(.*\))\$/\1 \2/p" "$2" | sort -u; }

# Fails unless this Rust is that of the BUILDINFO.
compare_rust() {
    wanted=$(sed -n 's/^ release: //p' "$DIST_PINS")
    found=$("$rust/bin/rustc" -vV | sed -n 's/^release: //p')
    [ "$wanted" = "$found" ] || die "this is Rust $found, and $DIST_PINS says $wanted: install it with rustup, and set RUSTUP_TOOLCHAIN=$wanted"
}

# Fails unless the root has the packages of the BUILDINFO, and no others.
compare_packages() {
    # shellcheck disable=SC2016
    enter / 0 dpkg-query -W -f '${Package} ${Version}\n' | sort -u >"$final.found"
    diff "$final.wanted" "$final.found" >&2 ||
        die "the root has other packages than $DIST_PINS lists (<). DIST_MIRROR and DIST_SECURITY can name an archive that has them"
}

# logged COMMAND...: runs a command, and shows what it says only if it fails.
logged() {
    "$@" >"$final.log" 2>&1 || { tail -n 20 "$final.log" >&2; die "$1 $2 failed (see above)"; }
}

make_root() {
    [ ! -e "$root" ] || die "$root is there already"
    final=$root
    root=$root.new
    find_rust
    if [ -n "${DIST_PINS:-}" ]; then
        listed Packages "$DIST_PINS" >"$final.wanted"
        [ -s "$final.wanted" ] || die "$DIST_PINS lists no packages"
        compare_rust
    fi
    # It is there if an earlier run was interrupted.
    rm -rf --one-file-system "$root"
    logged debootstrap --variant=minbase --keyring=$keys "$suite" "$root" "$mirror"
    # Only an archive of old packages has lists whose time may have passed.
    valid=
    [ -z "${DIST_MIRROR:-}${DIST_SECURITY:-}" ] || valid=' check-valid-until=no'
    {
        echo "deb [signed-by=$keys$valid] $mirror $suite main"
        echo "deb [signed-by=$keys$valid] $mirror $suite-updates main"
        echo "deb [signed-by=$keys$valid] $security $suite-security main"
    } >"$root/etc/apt/sources.list"
    echo 'APT::Update::Error-Mode "any"; Acquire::Retries "3"; Dpkg::Use-Pty "0";' >"$root/etc/apt/apt.conf.d/release"
    [ -z "${DIST_PINS:-}" ] || awk '{ print "Package: " $1 "\nPin: version " $2 "\nPin-Priority: 1001\n" }' "$final.wanted" \
        >"$root/etc/apt/preferences.d/buildinfo"
    mounts
    logged enter / 0 apt-get -q update
    logged enter / 0 apt-get -q -y --allow-downgrades --no-install-recommends dist-upgrade
    logged enter / 0 apt-get -q -y --no-install-recommends install ca-certificates git make python3
    # The last commit says what a build needs. What it fetches without a package manager is kept for each build.
    git clone -q --no-hardlinks "$here" "$root/prepared"
    for architecture; do enter /prepared 0 sh tests/setup.sh build "$architecture"; done
    enter /prepared 0 sh tests/setup.sh image
    [ -z "${DIST_PINS:-}" ] || compare_packages
    mkdir "$root/fetched"
    for part in sysroot libclang; do
        [ ! -e "$root/prepared/target/$part" ] || mv "$root/prepared/target/$part" "$root/fetched/"
    done
    rm -rf "$root/prepared"
}

build() {
    builder=$1 place=$2 home=$3 out=$4
    shift 4
    find_rust
    epoch=$(git -C "$here" log -1 --format=%ct)
    commit=$(git -C "$here" rev-parse HEAD)
    # Only downloads: unpacked sources have the paths that count.
    (cd "$here" && cargo fetch --locked --quiet)
    registry=${CARGO_HOME:-$HOME/.cargo}/registry
    rm -rf "${root:?}$place" "${root:?}$home"
    mkdir -p "$root$home/registry" "$root${place%/*}"
    for part in cache index; do cp -r "$registry/$part" "$root$home/registry/"; done
    # Hard links would give the objects of this repository to another user, below.
    git clone -q --no-hardlinks "$here" "$root$place"
    mkdir "$root$place/target"
    cp -r "$root/fetched/." "$root$place/target/"
    chown -R "$builder:$builder" "$root$place" "$root$home"
    mounts
    for architecture; do enter "$place" "$builder" make build ARCHITECTURE="$architecture"; done
    enter "$place" 0 sh docker/dist/dist.sh "$@" >/dev/null
    rm -rf "$out"
    cp -r "$root$place/target/dist" "$out"
}

# Runs this script again with mounts and processes that end with it.
in_namespace() {
    DIST_NAMESPACE=1 unshare --mount --pid --fork --kill-child sh "$0" "$@" &
    child=$!
    trap 'kill -KILL $child; exit 143' INT TERM HUP
    wait $child
}

[ "$(id -u)" = 0 ] || die "only root can make a root directory and enter it"
case ${1:-} in make | build) ;; *) die 'usage: root.sh make ROOT ARCHITECTURE..., or root.sh build ROOT USER PLACE HOME OUT ARCHITECTURE...' ;; esac
if [ -z "${DIST_NAMESPACE:-}" ]; then
    mkdir -p "$(dirname "$2")"
    exec 9>"$2.lock"
    flock --nonblock 9 || die "another build uses $2"
    in_namespace "$@"
    # The mounts are gone, so the directory can get its name.
    [ "$1" != make ] || mv "$2.new" "$2"
    exit
fi
task=$1
root=$(cd "$(dirname "$2")" && pwd -P)/$(basename "$2")
shift 2
case $task in
    make) make_root "$@" ;;
    build) build "$@" ;;
esac
