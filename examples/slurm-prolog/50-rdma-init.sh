#!/bin/sh
# A hook of enroot, in /etc/enroot/hooks.d: adds the variables that the container's environment does not have. Lines
# that are in the file stay as they are. If rdma-init fails, the container starts without them.
set -eu

# The decision depends on what the container sets, and not on the environment of this hook.
while IFS= read -r line || [ -n "$line" ]; do
    case $line in
        [A-Za-z_]*=*) set -- "$@" "$line" ;;
    esac
done <"$ENROOT_ENVIRON"
variables=$(env -i "$@" /usr/local/bin/rdma-init env --format docker) || exit 0
[ -z "$variables" ] || printf '%s\n' "$variables" >>"$ENROOT_ENVIRON"
