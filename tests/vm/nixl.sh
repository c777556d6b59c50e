#!/bin/sh
# Makes sure that target/nixl is a virtual environment with NIXL, and prints its directory.
set -eu

version=1.5.1
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/support/environment.sh
. "$here/../support/environment.sh"

# Moving data between CPU memory needs neither PyTorch nor CUDA, which the wheel depends on.
packages() { pip --no-deps "nixl-cu12==$version" numpy; }

environment "$here/../../target/nixl" "NIXL $version in target/nixl (90 MB)"
cd "$folder" && pwd -P
