#!/bin/sh
# Slurm's TaskProlog: sets the variables that a task does not have, on each node, before the task starts. Slurm takes
# a line `export NAME=VALUE` as it is, so the values are not quoted. If rdma-init fails, the task starts without them.
/usr/local/bin/rdma-init env --format docker | sed 's/^/export /'
