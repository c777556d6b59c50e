#!/bin/sh
# Makes sure that target/ray is a virtual environment with Ray, and prints its folder and that of
# the Python that it is made from.
set -eu

version=2.60.0
here=$(cd "$(dirname "$0")" && pwd -P)
ray=$here/../../target/ray
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

# The file "complete" is written last. Where it is missing, an installation was cut off, and is
# made anew.
if ! [ -e "$ray/complete-$version" ]; then
    rm -rf "$ray"
    mkdir -p "${ray%/*}"
    echo "installing Ray $version in target/ray (80 MB)" >&2
    python3 -m venv "$ray" >/dev/null 2>&1 || {
        $sudo apt-get update -qq >&2
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv >&2
        rm -rf "$ray"
        python3 -m venv "$ray" >&2
    }
    "$ray/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "ray==$version" >&2
    touch "$ray/complete-$version"
fi
cd "$ray" && pwd -P
bin/python -c 'import sys; print(sys.base_prefix)'
