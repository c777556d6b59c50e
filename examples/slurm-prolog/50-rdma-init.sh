#!/bin/sh
# A hook of enroot, in /etc/enroot/hooks.d: adds the variables that neither the container's environment nor the job has.
# Lines that are in the file stay as they are. If rdma-init fails, the container starts without the variables.
set -eu

[ -e "$ENROOT_ENVIRON" ] || exit 0
set --
unended=
# `read` fails at a last line without a line break, but takes it.
while IFS= read -r line || { [ -n "$line" ] && unended=yes; }; do
    case $line in
        [A-Za-z_]*=*) set -- "$@" "$line" ;;
    esac
done <"$ENROOT_ENVIRON"
# Under Slurm, this hook has the job's environment, and pyxis gives the container what this file does not set. Without
# Slurm, the container gets nothing of this hook's environment.
[ -n "${SLURM_JOB_ID:-}" ] || set -- -i "$@"
# A value that a line cannot hold costs only its own variable, and an exit code of 1.
variables=$(env "$@" /usr/local/bin/rdma-init env --format docker) || :
[ -n "$variables" ] || exit 0
[ -z "$unended" ] || echo >>"$ENROOT_ENVIRON"
printf '%s\n' "$variables" >>"$ENROOT_ENVIRON"
