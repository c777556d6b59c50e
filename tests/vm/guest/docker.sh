#!/bin/sh
# Containers of a real Docker engine with a soft-RoCE device, confined by AppArmor, which this kernel has: with Docker's
# default profiles, and with less than they allow, a job starts and has its watcher, the self-test passes, and two nodes
# pass the preflight. AppArmor denies nothing.
#   docker.sh BINARY
set -eu
. tests/vm/lib.sh
binary=$1

mount -t securityfs none /sys/kernel/security
grep -q apparmor /sys/kernel/security/lsm || fail "this kernel has no AppArmor: $(cat /sys/kernel/security/lsm)"
rxe mlx5_1 eth1 25.11.128.2/27
rxe mlx5_2 eth2 25.11.128.34/27

export DOCKER_HOST=unix:///run/docker.sock
# An engine gives the containerd that it starts 15 s, which emulation on a busy machine may exceed. What this one does not
# load is for other file systems, or for Kubernetes.
cat >/run/containerd.toml <<'T'
version = 2
root = "/run/containerd.root"
state = "/run/containerd.state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "/run/containerd.sock"
T
containerd --config /run/containerd.toml >/run/containerd.log 2>&1 &
containerd=$!
serves() {
    kill -0 $containerd || fail "$(cat /run/containerd.log)"
    grep -q 'containerd successfully booted' /run/containerd.log
}
await containerd serves
# These containers use the network of this machine, so the engine needs none. Its image has one layer.
echo '{"bridge": "none", "iptables": false, "storage-driver": "vfs", "data-root": "/run/docker"}' >/run/daemon.json
dockerd --config-file /run/daemon.json --host "$DOCKER_HOST" --containerd /run/containerd.sock >/run/dockerd 2>&1 &
engine=$!
answers() {
    kill -0 $engine || fail "$(cat /run/dockerd)"
    docker version >/dev/null 2>&1
}
await 'answer of the engine' answers
mkdir -p /run/image/bin
cp "$binary" /bin/busybox /run/image/bin/
for applet in sh cat env sleep; do ln -s busybox "/run/image/bin/$applet"; done
tar -C /run/image -c . | docker import --change 'ENTRYPOINT ["rdma-init", "--"]' - job >/dev/null

# run OPTION... IMAGE [WORD...]: docker run, in the network of this machine and with its HCAs. The client stays attached,
# because each further call of `docker` takes a second in emulation.
run() {
    docker run --rm --network host --device /dev/infiniband --ulimit memlock=-1 --env RDMA_INIT_PREPARE_TIMEOUT=120s "$@"
}

# The command of a job: says what it got, and ends with 7 when it is told to stop.
# shellcheck disable=SC2016
command='trap "exit 7" TERM
    read -r profile </proc/self/attr/current; echo "profile: $profile"
    read -r profile </proc/1/attr/current; echo "profile of PID 1: $profile"
    env | grep "^NCCL_IB_HCA"; echo ready
    while :; do sleep 1000 & wait; done'

is_ready() {
    kill -0 "$client" || fail "$(cat /run/job)"
    grep -qsx ready /run/job
}

# watcher: prints the PID of the watcher, which is a process of the only job.
watcher() { grep -lsx rdma-init-watch /proc/[0-9]*/comm | cut -d/ -f3; }
is_watched() { [ -n "$(watcher)" ]; }

# job OPTION...: a job in such a container starts, has its watcher, and ends.
job() {
    run --name job "$@" job sh -c "$command" >/run/job 2>&1 &
    client=$!
    await 'start of the job' is_ready
    await 'watcher' is_watched
    expect 'profile of the watcher' "$(cat "/proc/$(watcher)/attr/current")" 'docker-default (enforce)'
    docker exec job rdma-init status >/run/out 2>&1 || fail "$(cat /run/out)"
    cat /run/out
    has 'status reads the state' '^the command runs'
    docker stop --time 60 job >/dev/null
    code=0
    wait $client || code=$?
    mv /run/job /run/out
    cat /run/out
    has 'the command is confined' '^profile: docker-default (enforce)'
    has 'PID 1 is confined' '^profile of PID 1: docker-default (enforce)'
    has 'the HCAs' '^NCCL_IB_HCA==mlx5_1,mlx5_2'
    expect 'exit code' $code 7
}

# self_test OPTION...: in emulation on a busy machine, a step may take seconds.
self_test() {
    run "$@" --entrypoint rdma-init job self-test --each 5m --size 1048576 >/run/out 2>&1 || fail "$(cat /run/out)"
    cat /run/out
    has 'data arrives' 'ok *verbs-loopback mlx5_1:1 .*arrived unchanged'
}

# preflight OPTION...: two containers are two nodes of a job with one rail. With two, each would wait for the time limit to
# find that no rail reaches the other one.
preflight() {
    for node in 0 1; do
        run --env RDMA_INIT_TOKEN='a secret of two nodes' --env NCCL_IB_HCA==mlx5_1 "$@" --entrypoint rdma-init job \
            preflight --nodes 2 --node $node --meet 127.0.0.1:18516 --wait 10m --each 5m >"/run/node$node" 2>&1 &
        eval "node$node=$!"
    done
    for node in 0 1; do
        code=0
        eval "wait \$node$node" || code=$?
        cat "/run/node$node"
        expect "exit code of node $node" $code 0
    done
}

least='--user 65534 --cap-drop ALL --security-opt no-new-privileges --read-only'
for options in '' "$least"; do
    echo "--- docker run $options"
    # shellcheck disable=SC2086
    job $options
    # shellcheck disable=SC2086
    self_test $options
done
echo "--- a preflight of two containers: docker run $least"
# shellcheck disable=SC2086
preflight $least

denied() { dmesg | grep 'apparmor="DENIED"'; }
! denied || fail 'AppArmor has denied something'
echo 'ok: AppArmor has denied nothing'
# The profile denies mounts and some files of /proc without a message. All other denials are seen, such as this one.
run --pid host --entrypoint busybox job kill -CONT "$engine" >/run/out 2>&1 || :
denied || fail "AppArmor has not denied a signal: $(cat /run/out)"
