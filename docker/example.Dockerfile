# An image that starts with rdma-init and has the libraries that NCCL loads to use RDMA devices:
#
#     docker build -f docker/Dockerfile -t rdma-init .
#     docker build -f docker/example.Dockerfile -t rdma-init-example docker
#     docker run --rm rdma-init-example
ARG BASE=debian:bookworm-slim
ARG RDMA_INIT=rdma-init
FROM ${RDMA_INIT} AS rdma-init

FROM ${BASE}
RUN apt-get update && \
    apt-get install -y --no-install-recommends ibverbs-providers libibverbs1 librdmacm1 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=rdma-init /rdma-init /rdma-init
# A user who is not root works as well. Such a user does not get the container's CAP_IPC_LOCK,
# so the engine has to raise the limit of pinned memory: docker run --ulimit memlock=-1:-1 ...
#
#     USER 1000
#
# If the base image has an ENTRYPOINT of its own, write its words after the dashes:
#
#     ENTRYPOINT ["/rdma-init", "--", "OLD", "ENTRYPOINT"]
#
# ENTRYPOINT also resets the base image's CMD, so this file has to repeat it.
ENTRYPOINT ["/rdma-init", "--"]
CMD ["/rdma-init", "status"]
