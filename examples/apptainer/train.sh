#!/bin/sh
# Starts a command in an Apptainer image with the variables for this node. Run it once on each node, for example with
# srun.
set -eu

file=$(mktemp)
trap 'rm -f "$file"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
# If rdma-init fails, the command starts without the variables.
rdma-init env --format dotenv >"$file" || :
# Apptainer takes the place of this shell, and so gets its signals. The file stays open, and has no name anymore.
exec 3<"$file"
rm -f "$file"
exec apptainer exec --nv --env-file /dev/fd/3 "${IMAGE:-train.sif}" "$@"
