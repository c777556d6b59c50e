#!/bin/sh
# Tests three containers with different addresses on one soft-RoCE device, so that each has another GID
# index. Two of them run sshd under rdma-init, which propagates the values through sshd's configuration in
# one and through PAM in the other. The third one, with Open MPI's mpirun, starts ranks there: every rank
# gets its own node's values.
#   ssh.sh BINARY SSHD
# SSHD is the directory with Debian's unpacked openssh-server.
set -eu
. tests/vm/lib.sh
init=$1
sshd=$2

rxe mlx5_1 eth1 25.11.128.2/27
for number in 1 2 3; do
    container_netns "node$number" eth1 eth0 "25.11.128.1$number/27"
done
slot() { gid_slots mlx5_1 "25.11.128.1$1"; }
[ "$(slot 1)" != "$(slot 2)" ] && [ "$(slot 2)" != "$(slot 3)" ] || fail 'the nodes share a slot'

# The files of an image with sshd, and one key for all. Every container has its own /etc and /run; the users' homes are
# below /run, because the test and the program may be anywhere else.
image=/run/image
home=$image/run/root
mkdir -p $image
cp -a /etc $image/etc
cp -a "$sshd/etc/." $image/etc
cp "$sshd/usr/share/openssh/sshd_config" $image/etc/ssh
mkdir -p $image/etc/ssh/sshd_config.d $image/run/sshd $home/.ssh
sed -i 's|:/root:|:/run/root:|' $image/etc/passwd
grep -q ^sshd: $image/etc/passwd || echo 'sshd:x:65111:65534::/run/sshd:/usr/sbin/nologin' >>$image/etc/passwd
ssh-keygen -q -t ed25519 -N '' -f $image/etc/ssh/ssh_host_ed25519_key
ssh-keygen -q -t ed25519 -N '' -f $home/.ssh/id_ed25519
cp $home/.ssh/id_ed25519.pub $home/.ssh/authorized_keys
printf '%s\n' 'Host *' 'StrictHostKeyChecking no' 'UserKnownHostsFile /dev/null' 'LogLevel ERROR' >$home/.ssh/config
chmod 700 $home $home/.ssh
# Another user, who also logs in.
echo 'job:x:1234:1234::/run/job:/bin/sh' >>$image/etc/passwd
echo 'job:*:19000:0:99999:7:::' >>$image/etc/shadow
cp -a $home $image/run/job
chown -R 1234:1234 $image/run/job

# node NUMBER COMMAND...: runs in that container, with separate directories where this matters. Emulation is
# slow, so preparations get more time.
node() {
    number=$1
    shift
    mkdir -p "/run/node$number"
    # shellcheck disable=SC2016
    in_container "node$number" busybox sh -c '
        image=$1 own=$2
        shift 2
        mount="/bin/busybox mount"
        $mount -t tmpfs none "$own" && cp -a "$image/." "$own" &&
        $mount --bind "$own/etc" /etc && $mount --bind "$own/run" /run || exit 125
        export RDMA_INIT_PREPARE_TIMEOUT=60s HOME=/run/root
        exec "$@"' node $image "/run/node$number" "$@"
}

# worker NUMBER PROPAGATE SSHD-OPTION...
worker() {
    number=$1
    propagate=$2
    shift 2
    node "$number" env SECRET=hunter2 NCCL_DEBUG=WARN "$init" --propagate "$propagate" -- \
        "$sshd/usr/sbin/sshd" -D -e "$@" >"/run/worker$number" 2>&1 &
}
worker 1 ssh
worker 2 profile,environment -o UsePAM=yes
for number in 1 2; do
    await "sshd of node$number" nsenter --net="/run/netns/node$number" grep -q ':0016 .* 0A ' /proc/net/tcp
    cat "/run/worker$number"
done

# over USER@ADDRESS COMMAND: prints its NCCL variables, as node 3 receives them.
over() { node 3 ssh "$@" </dev/null 2>&1 | grep -a ^NCCL_ | sort | xargs; }
wanted() { echo "NCCL_DEBUG=WARN NCCL_IB_GID_INDEX=$(slot "$1") NCCL_IB_HCA==mlx5_1 NCCL_SOCKET_IFNAME=eth0"; }

echo '--- what sshd starts'
expect 'a command' "$(over root@25.11.128.11 env)" "$(wanted 1)"
expect 'of another user' "$(over job@25.11.128.11 env)" "$(wanted 1)"
expect 'a command, by PAM' "$(over root@25.11.128.12 env)" "$(wanted 2)"
expect 'a login shell' "$(over root@25.11.128.12 'env -i sh -lc env')" "$(wanted 2)"
kept() {
    case $1 in
        1) echo /etc/nccl.conf /etc/ssh/sshd_config.d/rdma-init.conf ;;
        2) echo /etc/environment /etc/nccl.conf /etc/profile.d/rdma-init.sh ;;
    esac | sed 's|$| /run/rdma-init/env.sh /run/rdma-init/nccl.conf /run/rdma-init/plan.json|'
}
# The files contain only what concerns NCCL.
for number in 1 2; do
    expect "what node $number keeps" "$(node 3 ssh "root@25.11.128.1$number" \
        'grep -rl hunter2 /run /etc /dev/shm; grep -rl =mlx5_1 /run /etc | sort | xargs' 2>&1)" \
        "$(kept $number)"
done

echo '--- mpirun'
# ranks COMMAND...: runs one on each worker. All three share /tmp and the host name, so Open MPI's directories of a session
# would be one, which the process that ends first removes.
ranks() {
    node 3 "$init" -- mpirun --allow-run-as-root --host 25.11.128.11,25.11.128.12 -np 2 \
        --mca orte_tmpdir_base /run --mca btl tcp,self --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --tag-output "$@" \
        >/run/ranks 2>/run/report || fail "mpirun ended with $?: $(cat /run/report /run/ranks)"
    cat /run/ranks
}
# shellcheck disable=SC2016
ranks sh -c 'echo "$OMPI_COMM_WORLD_RANK $NCCL_IB_GID_INDEX $NCCL_IB_HCA $NCCL_DEBUG"'
for rank in 0 1; do
    expect "rank $rank" "$(sed -n "s/.*stdout>:$rank //p" /run/ranks)" "$(slot $((rank + 1))) =mlx5_1 WARN"
done
grep -q "NCCL_IB_GID_INDEX *$(slot 3) " /run/report || fail "the launcher has another slot"
echo 'ok: and the launcher its own'
# This works without sshd's propagation.
# shellcheck disable=SC2016
ranks env -u NCCL_IB_GID_INDEX -u NCCL_IB_HCA "$init" exec -- sh -c 'echo "$OMPI_COMM_WORLD_RANK $NCCL_IB_GID_INDEX $NCCL_IB_HCA"'
for rank in 0 1; do
    expect "rank $rank by exec" "$(sed -n "s/.*stdout>:$rank //p" /run/ranks)" "$(slot $((rank + 1))) =mlx5_1"
done
