# shellcheck shell=sh disable=SC2154
# Sourced by scripts that need packages from PyPI. A script sets version, and defines a function `packages`
# that installs them with `pip`; `environment FOLDER WHAT` then makes sure that FOLDER is a virtual
# environment with them.
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

pip() { "$folder/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$@" >&2; }

# The file "complete" is written last. If it is missing, an installation was interrupted, and is repeated.
environment() {
    folder=$1
    ! [ -e "$folder/complete-$version" ] || return 0
    rm -rf "$folder"
    mkdir -p "${folder%/*}"
    echo "installing $2" >&2
    python3 -m venv "$folder" >/dev/null 2>&1 || {
        $sudo apt-get update -qq >&2
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv >&2
        rm -rf "$folder"
        python3 -m venv "$folder" >&2
    }
    packages
    touch "$folder/complete-$version"
}
