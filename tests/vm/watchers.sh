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
    await_limit=120 await 'watcher of each job' are_watched
    event :
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

# What a line may take besides its intervals, in ms: a look and a shell that sees the line have one emulated processor,
# which may have other work.
allowance=10000

# said NAME TEXT PLACE...: the watchers say it of the last event, within two intervals. Something that has to last for
# `lasting` seconds is said two intervals after that.
said() {
    what=$1
    text=$2
    shift 2
    heard=
    most=$(((2 * interval + ${lasting:-0}) * 1000))
    await_limit=600 await "line of each watcher: $what" all_said "$@"
}

# all_said PLACE...: tells of each one once.
all_said() {
    is_said=0
    for place; do
        case " $heard " in *" $place "*) continue ;; esac
        grep -q -- "$text" "/run/$place" && is_there=: || is_there=
        took=$(($(now_ms) - happened))
        [ $took -le $((most + allowance)) ] || fail "$what ($place): no line within $most ms and $allowance ms of the emulation: $(cat "/run/$place")"
        if [ -n "$is_there" ]; then
            heard="$heard $place"
            echo "ok: $what ($place): $took ms after the event, at most $most ms and $allowance ms of the emulation"
        else
            is_said=1
        fi
    done
    return $is_said
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
