#!/bin/sh
# Replaces a program that a job starts. It prints its parent, its arguments, and its environment. Under the
# name torchrun, it rejects the arguments that torchrun would reject. With STANDIN_STAYS in its environment,
# it keeps running.
name=${0##*/}

refuse() { echo "$name: $*" >&2; exit 2; }

launcher() {
    while :; do
        case ${1:-} in
            --*=?*) option=${1%%=*} ;;
            --*=) refuse "$1 has no value" ;;
            --*) [ -n "${2:-}" ] || refuse "$1 has no value"; option=$1; shift ;;
            ?*) return ;;
            *) refuse 'there is no script' ;;
        esac
        case $(echo "$option" | tr _ -) in
            --nnodes | --nproc-per-node | --node-rank | --master-addr | --master-port) ;;
            --rdzv-backend | --rdzv-endpoint | --rdzv-id | --max-restarts) ;;
            *) refuse "there is no option $option" ;;
        esac
        shift
    done
}

case $name in
    torchrun) launcher "$@" ;;
    python) [ "$1 $2" != '-m torch.distributed.launch' ] || (shift 2; launcher "$@") || exit ;;
esac

echo "parent $PPID $(cat "/proc/$PPID/comm")"
for argument in "$name" "$@"; do echo "argument $argument"; done
env
echo ready
[ -z "${STANDIN_STAYS:-}" ] || exec /bin/sleep 1000
