# An image that holds nothing but the binary, to COPY --from=... in another one.
#   docker build -f docker/scratch.Dockerfile -t rdma-init target/x86_64-unknown-linux-gnu/release
FROM scratch
COPY rdma-init /rdma-init
ENTRYPOINT ["/rdma-init"]
