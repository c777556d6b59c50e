#!/bin/sh
# Makes sure that target/torch is a virtual environment with PyTorch, and prints the folder of
# its programs.
set -eu

version=2.15.0
here=$(cd "$(dirname "$0")" && pwd -P)
torch=$here/../../target/torch
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

# The file "complete" is written last. Where it is missing, an installation was cut off, and is
# made anew.
if ! [ -e "$torch/complete-$version" ]; then
    rm -rf "$torch"
    mkdir -p "${torch%/*}"
    echo "installing PyTorch $version in target/torch" >&2
    python3 -m venv "$torch" >/dev/null 2>&1 || {
        $sudo apt-get update -qq >&2
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv >&2
        rm -rf "$torch"
        python3 -m venv "$torch" >&2
    }
    pip() { "$torch/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$@" >&2; }
    # The build for CPUs comes from an index of PyTorch's own. The build of PyPI works as well,
    # but brings CUDA and takes more than 5 GB.
    pip --retries 0 --index-url https://download.pytorch.org/whl/cpu "torch==$version" 2>/dev/null ||
        pip "torch==$version"
    touch "$torch/complete-$version"
fi
cd "$torch/bin" && pwd -P
