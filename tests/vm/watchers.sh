# Jobs under rdma-init that wait for their end, and what their watchers say. For scripts that run in the virtual
# machine of run.sh, with the binary in `init` and, if not the default, the seconds between two looks in `interval`:
#
#   . tests/vm/lib.sh
#   . tests/vm/watchers.sh
# shellcheck shell=sh disable=SC2154

# watch host|pod... [OPTION...]: a job in the network namespace of this script, or as a container in that of `pod`.
# Returns once both run. /run/PLACE is its standard error.
watch() {
    watched=
    while [ "${1:-}" = host ] || [ "${1:-}" = pod ]; do
        watched="$watched $1"
        shift
    done
    for place in $watched; do
        : >"/run/$place"
        rm -f "/run/$place.job"
        mkfifo "/run/$place.job"
        # An orphan or a process that is left would give a line. An emulated processor may have other work, and a
        # start that is late has no watcher.
        options="--warn-on-reap --drain-timeout 10s --prepare-timeout 120s ${interval:+--watch-interval ${interval}s}"
        # shellcheck disable=SC2086
        case $place in
            host) unshare --pid --fork --mount-proc "$init" $options "$@" -- cat "/run/$place.job" 2>"/run/$place" & ;;
            pod) in_container pod "$init" $options "$@" -- cat "/run/$place.job" 2>"/run/$place" & ;;
        esac
        eval "job_of_$place=$!"
    done
    # The jobs end when these are closed.
    for place in $watched; do
        case $place in
            host) exec 7<>"/run/$place.job" ;;
            pod) exec 8<>"/run/$place.job" ;;
        esac
    done
    await 'watcher of each job' are_watched
}

# The watcher has a process of this name.
are_watched() {
    # shellcheck disable=SC2086
    set -- $watched
    # Processes end meanwhile.
    [ "$(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx rdma-init-watch)" = $# ]
}

# end: the jobs end, with the code of their command.
end() {
    exec 7>&- 8>&-
    for place in $watched; do
        eval "wait \$job_of_$place" || fail "the job ($place): $?, $(cat "/run/$place")"
        ! grep -e 'which is not the command' -e 'drain-timeout' "/run/$place" || fail "a process is left ($place)"
    done
}

# said NAME TEXT PLACE...: waits until the watchers have said it.
said() {
    what=$1
    text=$2
    shift 2
    for place; do
        await "line of the watcher ($place): $what" grep -q -- "$text" "/run/$place"
        echo "ok: $what ($place)"
    done
}

# lines NAME PLACE WANTED [FILTER]: all that the watcher has said so far, without times and indexes.
lines() {
    sed -n '/^rdma-init: \(warning\|note\): /{
        s/^rdma-init: //
        s/^\([a-z]*\): [0-9:]* UTC: /\1: /
        s/, after [0-9].*/, after TIME/
        s/ in the first [^:]*:/ in the first TIME:/
        s/ for [0-9][^,]*, after/ for TIME, after/
        s/index [0-9]*/index N/g
        p
    }' "/run/$2" | "${4:-cat}" >"/run/$2.lines"
    expect "$1 ($2)" "$(cat "/run/$2.lines")" "$3"
}
