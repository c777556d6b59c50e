# One of three machines with two soft-RoCE rails between them, and a network for TCP: the functions of
# scripts in which these machines are the nodes of jobs, node 1 being node 0 of each. For scripts with the
# arguments BINARY NUMBER, which run in the virtual machine of run.sh:
#
#   . tests/vm/lib.sh
#   . tests/vm/job.sh
# shellcheck shell=sh

init=$1
number=$2

hostname "node$number"
rails "$number"
export RDMA_INIT_TOKEN='a secret of 3 nodes'
port=18516
wait=150s
each=20s

# next NAME: another job. A port for each, as who comes early must not find the node 0 of the job
# before.
next() {
    read -r now _ </proc/uptime
    echo "--- $1 (at $now s)"
    port=$((port + 1))
}

# node [ARGUMENT...]: this machine's part; where `become` is exec, in place of this shell.
node() {
    ${become:-} "$init" preflight --nodes 3 --node $((number - 1)) --meet "node1:$port" --wait "$wait" \
        --each "$each" "$@" >/run/out 2>&1
}

# job CODE [ARGUMENT...]: this machine's part, to its end; in /run/out, shown.
job() {
    wanted=$1
    shift
    code=0
    node "$@" || code=$?
    cat /run/out
    expect 'exit code' "$code" "$wanted"
}

# accuses NAME: the failures of the verdict name this one, and no other node or rail.
accuses() {
    grep -E 'FAILED  |preflight failed' /run/out >/run/verdict || fail "nothing has failed"
    grep -q -- "$1" /run/verdict || fail "no $1 in the verdict"
    for other in node1 node2 node3; do
        case $1 in
            "$other"*) ;;
            # A clause may say whom a node could not reach.
            *) ! sed 's/(.*//; s/: .*//' /run/verdict | grep -q "FAILED *$other" || fail "$other is accused" ;;
        esac
    done
    echo "ok: $1 is at fault, and no other node"
}
