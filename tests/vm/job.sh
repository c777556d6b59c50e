# Functions for scripts in three machines with two soft-RoCE rails between them, and a network for TCP.
# These machines are the nodes of jobs; machine 1 is node 0 of each job. The scripts have the arguments
# BINARY NUMBER, and run in the virtual machine of run.sh:
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
wait=10m
each=20s

# next NAME: starts another job. Each job gets a new port, because an early node must not find node 0 of the
# previous job.
next() {
    read -r now _ </proc/uptime
    echo "--- $1 (at $now s)"
    port=$((port + 1))
}

# node [ARGUMENT...]: runs this machine's node.
node() {
    "$init" preflight --nodes 3 --node $((number - 1)) --meet "node1:$port" --wait "$wait" \
        --each "$each" "$@" >/run/out 2>&1
}

# job CODE [ARGUMENT...]: runs this machine's node to its end; writes the output to /run/out, and shows it.
job() {
    wanted=$1
    shift
    code=0
    node "$@" || code=$?
    cat /run/out
    expect 'exit code' "$code" "$wanted"
}

# accuses NAME: expects that the failures in the verdict name this node, and no other node or rail.
accuses() {
    grep -E 'FAILED  |preflight failed' /run/out >/run/verdict || fail "nothing has failed"
    grep -q -- "$1" /run/verdict || fail "no $1 in the verdict"
    for other in node1 node2 node3; do
        case $1 in
            "$other"*) ;;
            # A clause may name nodes that a node could not reach.
            *) ! sed 's/(.*//; s/: .*//' /run/verdict | grep -q "FAILED *$other" || fail "$other is accused" ;;
        esac
    done
    echo "ok: $1 is at fault, and no other node"
}
