#!/bin/sh
# Fetches the newest release of each library that is modelled, and says what it has that the model has not:
# tests/follow/follow.sh [PACKAGE...]. Wheels go to target/follow, and those that are there are kept.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
repository=$(cd "$here/../.." && pwd -P)
cache=$repository/target/follow
[ $# -gt 0 ] || set -- nvidia-nccl-cu12 nixl-cu12 nvidia-nvshmem-cu12 mooncake-transfer-engine sglang vllm
mkdir -p "$cache"
failed=
for package; do
    # `vllm (0.23.0)` is its first line.
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
        # Each tag that the wheels of these packages have: pip takes only those that this machine's own C library fits.
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
    python3 "$here/names.py" "$package" "$version" "$wheels"/*.whl "$@"
    # Where the library can be asked on random hosts, beside the model.
    case $package in
        nvidia-nccl-*)
            RDMA_INIT_TEST_NCCL=$version sh "$here/../nccl/setup.sh"
            RDMA_INIT_TEST_NCCL=$version cargo test --locked --test nccl -- random model forecast || failed="$failed $package"
            ;;
        nixl-*)
            # The UCX of this machine: that of the wheel has no ucx_info.
            cargo test --locked --test ucx || failed="$failed $package"
            ;;
    esac
done
[ -z "$failed" ] || { echo "not followed, or the model disagrees (see above):$failed" >&2; exit 1; }
