# Makes the same image as docker/Dockerfile, from a binary that `make build` has built:
#
#     tar -c -C target/x86_64-unknown-linux-gnu/release rdma-init -C "$PWD" docker/scratch.Dockerfile |
#       docker build --no-cache --platform linux/amd64 -f docker/scratch.Dockerfile -t rdma-init -
#
# The same for arm64, with the binary that `make build-all` builds as well:
#
#     tar -c -C target/aarch64-unknown-linux-gnu/release rdma-init -C "$PWD" docker/scratch.Dockerfile |
#       docker build --no-cache --platform linux/arm64 -f docker/scratch.Dockerfile -t rdma-init -
#
# Docker's older builder would take from its cache what it has made of the same binary for another
# platform.
FROM scratch
COPY --chown=0:0 rdma-init /rdma-init
ENTRYPOINT ["/rdma-init"]
