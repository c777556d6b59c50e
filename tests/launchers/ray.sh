#!/bin/sh
# Makes sure that target/ray is a virtual environment with Ray, and prints its directory and that of the
# Python installation it is based on.
set -eu

version=2.60.0
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/support/environment.sh
. "$here/../support/environment.sh"

packages() { pip "ray==$version"; }

environment "$here/../../target/ray" "Ray $version in target/ray (80 MB)"
cd "$folder" && pwd -P
bin/python -c 'import sys; print(sys.base_prefix)'
