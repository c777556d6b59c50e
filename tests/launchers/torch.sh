#!/bin/sh
# Makes sure that target/torch is a virtual environment with PyTorch, and prints the directory of
# its programs.
set -eu

version=2.15.0
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/support/environment.sh
. "$here/../support/environment.sh"

# The build for CPUs comes from PyTorch's own index. The build from PyPI works as well, but it includes CUDA
# and takes more than 5 GB.
packages() {
    pip --retries 0 --index-url https://download.pytorch.org/whl/cpu "torch==$version" 2>/dev/null ||
        pip "torch==$version"
}

environment "$here/../../target/torch" "PyTorch $version in target/torch"
cd "$folder/bin" && pwd -P
