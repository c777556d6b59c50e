#!/bin/sh
# The start command of a DLC job of the framework PyTorch. DLC runs it in a shell, so rdma-init
# may be a child of that shell and not PID 1. With --supervise it looks after torchrun
# nevertheless.
exec /rdma-init --supervise --require-rdma --stop-timeout=25s --drain-timeout=10s -- \
    torchrun --nnodes="$WORLD_SIZE" --node-rank="$RANK" --nproc-per-node="$NPROC_PER_NODE" \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" train.py
