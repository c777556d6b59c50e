# Puts rdma-init in front of an image that has an ENTRYPOINT of its own, here `python serve.py`:
#
#     docker build -f docker/Dockerfile -t rdma-init .
#     docker build --build-arg BASE=your-image -t serve -f examples/dockerfile/entrypoint.Dockerfile examples/dockerfile
ARG BASE
ARG RDMA_INIT=rdma-init
FROM ${RDMA_INIT} AS rdma-init

FROM ${BASE}
COPY --from=rdma-init /rdma-init /rdma-init
# The words of the image's own ENTRYPOINT come after the dashes.
ENTRYPOINT ["/rdma-init", "--", "python", "serve.py"]
# ENTRYPOINT resets the CMD of the base image, so write that CMD again, or another one.
CMD ["--port", "8000"]
