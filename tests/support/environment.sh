# shellcheck shell=sh disable=SC2154
# Sourced by what needs packages of PyPI. It sets version, and a function `packages` that installs them
# with `pip`; `environment FOLDER WHAT` then makes sure that FOLDER is a virtual environment with them.
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

pip() { "$folder/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$@" >&2; }

# The file "complete" is written last. Where it is missing, an installation was cut off, and is
# made anew.
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
