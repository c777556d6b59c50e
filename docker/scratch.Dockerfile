# Makes the same image as docker/Dockerfile, from a binary that `make build` has built:
#
#     tar -c -C target/$(uname -m)-unknown-linux-gnu/release rdma-init -C "$PWD" docker/scratch.Dockerfile |
#       docker build -f docker/scratch.Dockerfile -t rdma-init -
FROM scratch
COPY rdma-init /rdma-init
ENTRYPOINT ["/rdma-init"]
