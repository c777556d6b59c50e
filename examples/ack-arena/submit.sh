#!/bin/sh
# Submits a PyTorch job on two nodes with 8 GPUs and one eRDMA device each.
set -eu

# Arena has a shell run the command in each Pod. The shell becomes rdma-init (exec), which is then
# PID 1, and is stopped within the 30 s that a Pod gets. The variables are the Pod's.
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
