# Jobs under rdma-init that wait for their end, and what their watchers say. For scripts that run in the virtual
# machine of run.sh, with the binary in `init` and the seconds between two looks in `interval`:
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
        set -- --watch-interval "${interval}s" --warn-on-reap --drain-timeout 10s --prepare-timeout 120s "$@"
        case $place in
            host) unshare --pid --fork --mount-proc "$init" "$@" -- cat "/run/$place.job" 2>"/run/$place" & ;;
            pod) in_container pod "$init" "$@" -- cat "/run/$place.job" 2>"/run/$place" & ;;
        esac
        eval "job_of_$place=$!"
        shift 7
    done
    # The jobs end when these are closed.
    for place in $watched; do
        case $place in
            host) exec 7<>"/run/$place.job" ;;
            pod) exec 8<>"/run/$place.job" ;;
        esac
    done
    event :
    await_limit=120 await 'watcher of each job' are_watched
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
    done
}

now_ms() { awk '{ printf "%d\n", $1 * 1000 }' /proc/uptime; }

# event COMMAND...: what a line is to be said about.
event() {
    happened=$(now_ms)
    "$@"
}

# said NAME TEXT PLACE...: the watchers say it of the last event. How long that took is shown; its limit is wide, as
# an emulated processor may have other work.
said() {
    what=$1
    text=$2
    shift 2
    heard=
    await_limit=90 await "line of each watcher: $what" all_said "$@"
}

# all_said PLACE...: tells of each one once.
all_said() {
    is_said=0
    for place; do
        case " $heard " in *" $place "*) continue ;; esac
        if grep -q -- "$text" "/run/$place"; then
            heard="$heard $place"
            echo "ok: $what ($place): $(($(now_ms) - happened)) ms after the event, two intervals are $((interval * 2000)) ms"
        else
            is_said=1
        fi
    done
    return $is_said
}

# lines NAME PLACE WANTED: all that the watcher has said so far, without times and indexes.
lines() {
    sed -n '/^rdma-init: \(warning\|note\): /{
        s/^rdma-init: //
        s/, after [0-9].*/, after TIME/
        s/ in the first [^:]*:/ in the first TIME:/
        s/ for [0-9][^,]*, after/ for TIME, after/
        s/index [0-9]*/index N/g
        p
    }' "/run/$2" >"/run/$2.lines"
    expect "$1 ($2)" "$(cat "/run/$2.lines")" "$3"
}
