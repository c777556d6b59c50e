#!/bin/sh
# Downloads the newest version of each modeled library, and reports what it has that the model lacks:
# tests/follow/follow.sh [PACKAGE...]. Wheels are stored in target/follow, and existing ones are kept.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
repository=$(cd "$here/../.." && pwd -P)
cache=$repository/target/follow
[ $# -gt 0 ] || set -- nvidia-nccl-cu12 nixl-cu12 nvidia-nvshmem-cu12 mooncake-transfer-engine sglang vllm
mkdir -p "$cache"
failed=
for package; do
    # The first line is, for example, `vllm (0.23.0)`.
    version=$(python3 -m pip index versions --disable-pip-version-check "$package" 2>/dev/null | sed -n '1s/.*(\(.*\))$/\1/p')
    if [ -z "$version" ]; then
        echo "$package: pip cannot say what its newest release is"
        failed="$failed $package"
        continue
    fi
    wheels=$cache/$package-$version
    if [ ! -e "$wheels" ]; then
        echo "$package: fetching $version" >&2
        rm -rf "$wheels.new"
        # All tags of these packages' wheels: by default, pip takes only those that match this machine's C
        # library.
        python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
            --dest "$wheels.new" "$package==$version" >&2 || { failed="$failed $package"; continue; }
        mv "$wheels.new" "$wheels"
    fi
    case $package in
        nvidia-nccl-*)
            modelled=$(tail -n 1 "$here/../nccl/versions")
            RDMA_INIT_TEST_NCCL=$modelled sh "$here/../nccl/setup.sh"
            set -- "$repository/target/nccl/$modelled/libnccl.so.2"
            ;;
        *) set -- ;;
    esac
    # A wheel that has changed its content must not keep the others from being followed.
    python3 "$here/names.py" "$package" "$version" "$wheels"/*.whl "$@" || failed="$failed $package"
    # If the library can be asked on random hosts, compare it with the model.
    case $package in
        nvidia-nccl-*)
            RDMA_INIT_TEST_NCCL=$version sh "$here/../nccl/setup.sh"
            RDMA_INIT_TEST_NCCL=$version cargo test --locked --test suite -- nccl::random nccl::model nccl::forecast || failed="$failed $package"
            ;;
        nixl-*)
            # This uses the UCX of this machine, because the wheel has no ucx_info.
            cargo test --locked --test suite ucx:: || failed="$failed $package"
            ;;
    esac
done
[ -z "$failed" ] || { echo "not followed, or the model disagrees (see above):$failed" >&2; exit 1; }
