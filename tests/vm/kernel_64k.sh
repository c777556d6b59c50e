# For setup.sh: builds a kernel with pages of 64 KiB, which Debian does not have, from Debian's source of
# Linux 6.1. This takes ten minutes on two CPUs.
# shellcheck shell=sh disable=SC2154

compiler=
[ "$architecture" = "$(uname -m)" ] || compiler=$architecture-linux-gnu-

tools_of_build() {
    have "${compiler}gcc" "gcc${compiler:+-aarch64-linux-gnu}"
    for tool in make flex bison bc xz; do
        have $tool $tool
    done
}

# Builds the kernel, and puts it in the same places as a packaged one.
build_kernel() {
    sources=$cache/sources
    build=$cache/build
    rm -rf "$cache/kernel" "$sources" "$build"
    mkdir -p "$sources" "$build"
    # shellcheck disable=SC2317
    download() {
        (cd "$sources" && apt-get -q download -o APT::Sandbox::User="$(id -un)" linux-source-6.1 >&2)
    }
    apt download || die "cannot download Debian's source of the kernel"
    dpkg-deb -x "$sources"/*.deb "$sources"
    tar -C "$sources" -xf "$sources/usr/src/linux-source-6.1.tar.xz"
    say 'building a kernel'
    kernel_make() {
        make -s -C "$sources/linux-source-6.1" ARCH=arm64 "CROSS_COMPILE=$compiler" "O=$build" "$@" >&2
    }
    if ! kernel_make "KCONFIG_ALLCONFIG=$here/kernel_64k.config" allnoconfig ||
        ! kernel_make "-j$(nproc)" Image; then
        die 'cannot build the kernel'
    fi
    # It has no modules, and modprobe is configured to use the built-in ones instead.
    version=$(cat "$build/include/config/kernel.release")
    mkdir -p "$cache/kernel/lib/modules/$version"
    for list in modules.builtin modules.builtin.modinfo; do
        cp "$build/$list" "$cache/kernel/lib/modules/$version"
    done
    : >"$cache/kernel/lib/modules/$version/modules.order"
    depmod -b "$cache/kernel" "$version"
    cp "$here/kernel_64k.config" "$cache/config"
    mv -f "$build/arch/arm64/boot/Image" "$cache/vmlinux"
    rm -rf "$sources" "$build"
}
