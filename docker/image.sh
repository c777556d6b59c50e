#!/bin/sh
# Makes one image index from the binaries for x86-64 and for arm64 that `make build-all` built, each in the
# image of docker/scratch.Dockerfile. It needs buildah, but neither Docker nor a base image.
#
#     docker/image.sh oci-archive:FILE [TARGET]                  into a file
#     docker/image.sh docker://registry.example.com/rdma-init    into a registry
#
# TARGET is cargo's directory, usually target/. containers-transports(5) lists other destinations. The
# timestamps in the image are SOURCE_DATE_EPOCH, if that is set.
set -eu

to=$1
cd "$(dirname "$0")/.."
target=${2:-target}

# This does not touch buildah's storage for other images.
mkdir -p target
store=$(mktemp -d "$PWD/target/image.XXXXXX")
trap 'rm -rf "$store"' EXIT
buildah() { command buildah --root "$store/root" --runroot "$store/run" --storage-driver vfs "$@"; }

for platform in ${PLATFORMS:-amd64:x86_64 arm64:aarch64}; do
    folder=$target/${platform#*:}-unknown-linux-gnu/release
    [ -e "$folder/rdma-init" ] || { echo "there is no $folder/rdma-init: make build-all" >&2; exit 1; }
    # The history of the image has a hash of the file with its owner and time, which are those of the release here.
    context=$store/${platform%:*}
    mkdir "$context"
    install -m 755 "$folder/rdma-init" "$context/rdma-init"
    touch --date="@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$folder/rdma-init")}" "$context/rdma-init"
    buildah build --quiet ${SOURCE_DATE_EPOCH:+--timestamp "$SOURCE_DATE_EPOCH"} --platform "linux/${platform%:*}" --manifest rdma-init \
        --file docker/scratch.Dockerfile "$context" >/dev/null
done
buildah manifest push --quiet --all rdma-init "$to" >/dev/null
echo "$to: ${PLATFORMS:-linux/amd64 and linux/arm64}"
