# For setup.sh, if the guest's architecture is not this machine's: makes a Debian 12 for it in the directory
# `debian`. Nothing is installed on this machine, and its own apt stays unchanged.
# shellcheck shell=sh disable=SC2086,SC2154

# The programs that the scripts in guest/ call.
programs='base-files usr-is-merged libc-bin bash dash coreutils debianutils findutils grep sed
    mawk util-linux procps kmod iproute2 strace perftest busybox-static'

# From here on, apt's programs work on that Debian and keep their state in the directory. This machine's apt
# configuration also applies, because it may set a proxy.
use_its_apt() {
    case $architecture in
        x86_64) name=amd64 ;;
        aarch64) name=arm64 ;;
    esac
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -f "$keys" ] || apt $sudo apt-get -q install -y debian-archive-keyring >&2
    mkdir -p "$debian/apt/state" "$debian/apt/cache"
    : >"$debian/apt/installed"
    for suite in 'debian bookworm' 'debian-security bookworm-security'; do
        echo "deb [signed-by=$keys] http://deb.debian.org/$suite main"
    done >"$debian/apt/sources.list"
    cat >"$debian/apt/apt.conf" <<END
APT::Architecture "$name";
APT::Architectures { "$name"; };
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Dir::Etc::SourceList "$debian/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "$debian/apt/state";
Dir::State::status "$debian/apt/installed";
Dir::Cache "$debian/apt/cache";
END
    export APT_CONFIG="$debian/apt/apt.conf"
    sudo=
}

# Unpacks the programs with their dependencies: the guest's root file system.
fetch_root() {
    new=$debian/root.new
    rm -rf "$debian/root" "$new" "$debian/apt/cache/archives"
    # These links must exist before any files, because some packages still use the old directories.
    for folder in bin sbin lib; do
        mkdir -p "$new/usr/$folder"
        ln -s "usr/$folder" "$new/$folder"
    done
    say fetching $programs
    apt apt-get -q install -y --download-only --no-install-recommends $programs >&2 ||
        die "cannot download Debian's programs for $architecture"
    for deb in "$debian"/apt/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -C "$new" -x --keep-directory-symlink
    done
    rm -rf "$debian/apt/cache/archives"
    # These steps replace the packages' scripts, which cannot run here.
    ln -s mawk "$new/usr/bin/awk"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$new/etc/passwd"
    echo 'root:x:0:' >"$new/etc/group"
    mv "$new" "$debian/root"
}
