#!/bin/sh
# Starts a node's daemons; the first node also runs the controller. NODES is the number of nodes.
set -e
sed -i "s/NODES/$NODES/" /etc/slurm/slurm.conf
for number in 0 1 2 3 4 5 6 7; do : >"/dev/nvidia$number"; done
setpriv --reuid munge --regid munge --clear-groups munged
[ "$(hostname)" != slurm1 ] || slurmctld
slurmd
echo ready
exec sleep 1000
