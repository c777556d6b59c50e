#!/bin/sh
# Starts a node's daemons; the first node has the controller as well. NODES is how many nodes there are.
set -e
sed -i "s/NODES/$NODES/" /etc/slurm/slurm.conf
for number in 0 1 2 3 4 5 6 7; do : >"/dev/nvidia$number"; done
setpriv --reuid munge --regid munge --clear-groups munged
[ "$(hostname)" != slurm1 ] || slurmctld
slurmd
echo ready
exec sleep 1000
