#!/bin/sh
# Submits a PyTorch job on two nodes, each with 8 GPUs and one eRDMA device.
set -eu

# Arena lets a shell run the command in each Pod. The shell becomes rdma-init (exec), so
# rdma-init is PID 1. Its stop timeout ends the job within the 30 s that a Pod gets to stop. The
# Pod sets the variables of the command, so this shell must not expand them.
# shellcheck disable=SC2016
command='exec /rdma-init --stop-timeout=25s --drain-timeout=10s --
    torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK --nproc-per-node=8
    --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT train.py'

exec arena submit pytorch \
    --name=train \
    --namespace="${NAMESPACE:-default}" \
    --image="${IMAGE:-registry.example.com/train:1}" \
    --workers=2 \
    --gpus=8 \
    --device=aliyun/erdma=1 \
    --share-memory=64Gi \
    --env=RDMA_INIT_PROFILE=ack-erdma \
    --env=RDMA_INIT_REQUIRE_RDMA=true \
    "$(echo "$command" | tr -s '\n ' ' ')"
