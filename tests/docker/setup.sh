#!/bin/sh
# Makes sure that a Docker engine answers, that there is a static busybox for images, and that the few tools
# that the tests use are installed. It installs and starts only what is missing.
#
#     tests/docker/setup.sh
#
# If the engine is not the one that `docker` finds by itself, the script prints DOCKER_HOST=... for the
# caller to export. That engine keeps running for the next caller. `kill $(cat /run/rdma-init-docker/pid)`
# stops it, and `rm -r /run/rdma-init-docker /var/lib/rdma-init-docker` removes its files.
set -eu

run=/run/rdma-init-docker
data=/var/lib/rdma-init-docker
socket=unix://$run/docker.sock

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

say() { echo "docker setup: $*" >&2; }
die() { say "$*"; exit 1; }

# install PACKAGE...: installs packages. It first tries the existing package lists.
install() {
    command -v apt-get >/dev/null || die "install $*, or what is called so here"
    say "installing $*"
    apt_install() {
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
            --no-install-recommends "$@" >/dev/null
    }
    apt_install "$@" 2>/dev/null && return 0
    $sudo apt-get -qq update >&2
    apt_install "$@" >&2 || die "cannot install $*"
}

answers() { timeout 20 docker "$@" version >/dev/null 2>&1; }

# The test containers use the engine's default network.
has_bridge() { timeout 20 docker "$@" network inspect bridge >/dev/null 2>&1; }
no_bridge() {
    die "the Docker engine that answers has no default bridge network, which the tests need. Remove \"bridge\": \"none\" from its
    configuration (/etc/docker/daemon.json, or dockerd --bridge) and restart it, or stop it: the tests start their own engine then."
}

starts=0
start_engine() {
    starts=$((starts + 1))
    say "starting an engine on $socket"
    $sudo mkdir -p "$run" "$data"
    # This machine's configuration is for another engine, so this one gets an empty configuration.
    echo '{}' | $sudo tee "$run/daemon.json" >/dev/null
    # The engine runs in its own session, so that a Ctrl-C in the tests does not stop it.
    $sudo setsid sh -c 'exec dockerd --config-file "$0/daemon.json" --host "$1" --group "$2" \
        --pidfile "$0/pid" --exec-root "$0/exec" --data-root "$3" >"$0/log" 2>&1' \
        "$run" "$socket" "$(id -g)" "$data" </dev/null 9>&- &
    engine=$!
    tries=0
    until answers --host "$socket"; do
        tries=$((tries + 1))
        # It gives the containerd that it starts 15 s, which a busy machine may need.
        if ! [ -d /proc/$engine ] && [ $starts -lt 5 ] && grep -q 'timeout waiting for containerd to start' "$run/log"; then
            start_engine
            return
        fi
        if [ $tries -gt 1000 ] || ! [ -d /proc/$engine ]; then
            $sudo tail -n 5 "$run/log" >&2
            die 'the engine does not start (see above)'
        fi
        sleep 0.1
    done
}

# Administrators' programs may be in directories outside a user's search path.
PATH=$PATH:/usr/sbin:/sbin

missing=
# An image without a dynamic loader needs a statically linked busybox.
[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || missing=busybox-static
command -v setcap >/dev/null || missing="$missing libcap2-bin"
command -v ps >/dev/null || missing="$missing procps"
# shellcheck disable=SC2086
[ -z "$missing" ] || install $missing

# Two test programs that run at the same time must not start two engines.
exec 9>"${TMPDIR:-/tmp}/rdma-init-docker-$(id -u).lock"
flock 9

if command -v docker >/dev/null && answers; then
    has_bridge || no_bridge
    exit 0
fi
if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then
    # Some distributions have the client in a separate package that docker.io only recommends.
    client=$(apt-cache -q show docker-cli 2>/dev/null | grep -m1 '^Package: docker-cli$' || :)
    install docker.io ca-certificates iptables ${client:+docker-cli}
    # If there is a service manager, the installation has started the engine.
    if answers; then
        has_bridge || no_bridge
        exit 0
    fi
fi
answers --host "$socket" || start_engine
has_bridge --host "$socket" || no_bridge
echo "DOCKER_HOST=$socket"
