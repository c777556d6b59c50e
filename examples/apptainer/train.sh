#!/bin/sh
# Starts a command in an Apptainer image with the variables for this node. Run it once on each node, for example with
# srun.
set -eu

file=$(mktemp)
trap 'rm -f "$file"' EXIT
# If rdma-init fails, the command starts without the variables.
rdma-init env --format dotenv >"$file" || :
apptainer exec --nv --env-file "$file" "${IMAGE:-train.sif}" "$@"
