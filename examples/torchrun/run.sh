#!/bin/sh
# Starts one node's part of a job on two nodes. Run it on both nodes, with rank 0 and rank 1.
#
#   run.sh RANK ADDRESS_OF_RANK_0 [SCRIPT [ARGUMENT]...]
set -eu

image=${IMAGE:-train}
[ $# -ge 2 ] || { sed -n 's/^#   /usage: /p' "$0" >&2; exit 2; }
rank=$1
master=$2
shift 2
[ $# -gt 0 ] || set -- train.py

# docker stop waits longer than the stop-timeout of the image.
exec docker run --rm --name "train-$rank" --stop-timeout 60 \
    --network host --gpus all --shm-size 64g \
    --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1:-1 \
    "$image" torchrun --nnodes 2 --nproc-per-node 8 --node-rank "$rank" \
    --master-addr "$master" --master-port 29500 "$@"
