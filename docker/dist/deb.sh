#!/bin/sh
# Makes a Debian package of an unpacked release: docker/dist/deb.sh TREE VERSION ARCHITECTURE WORK FILE. The
# package has no dependencies, runs no scripts, and so leaves nothing on removal.
set -eu
tree=$1 version=$2 architecture=$3 root=$4 file=$5
rm -rf "$root"
share=$root/usr/share
mkdir -p "$root/DEBIAN" "$root/usr/bin" "$share/man/man1" "$share/doc/rdma-init" "$share/fish/vendor_completions.d" \
    "$share/bash-completion/completions" "$share/zsh/vendor-completions"
cp "$tree/rdma-init" "$root/usr/bin/"
cp "$tree"/man/*.1 "$share/man/man1/"
gzip -9n "$share"/man/man1/*.1
cp "$tree/completions/rdma-init.bash" "$share/bash-completion/completions/rdma-init"
cp "$tree/completions/_rdma-init" "$share/zsh/vendor-completions/"
cp "$tree/completions/rdma-init.fish" "$share/fish/vendor_completions.d/"
cp -r "$tree/licenses" "$tree/sbom.cdx.json" "$tree/BUILDINFO" "$share/doc/rdma-init/"
gzip -9nc "$tree/CHANGELOG.md" >"$share/doc/rdma-init/changelog.gz"
{
    echo "rdma-init is licensed under either of Apache-2.0 or MIT, at your option."
    echo "The licenses of what it contains are in the directory licenses."
    echo
    cat "$tree/LICENSE-MIT"
    echo
    cat "$tree/LICENSE-APACHE"
} >"$share/doc/rdma-init/copyright"
size=$(du -sk --apparent-size "$root/usr" | cut -f 1)
cat >"$root/DEBIAN/control" <<END
Package: rdma-init
Version: $version
Architecture: $architecture
Maintainer: The authors of rdma-init
Installed-Size: $size
Section: admin
Priority: optional
Description: PID 1 for multi-node GPU training containers
 Fills in NCCL variables from the RDMA devices that are really there, makes
 sure that memory can be pinned, and then execs the command.
END
# gzip, because the output of xz depends on the number of CPUs.
dpkg-deb -Zgzip --root-owner-group --build "$root" "$file" >/dev/null
