#!/bin/sh
# A rank of mpirun, which writes what happens to it to files of a folder.
#
#   rank.sh FOLDER [stubborn]
folder=$1
rank=$OMPI_COMM_WORLD_RANK
leave=exit
[ "${2:-}" = stubborn ] && leave=:
# The shell tells of a `sleep` that was terminated, and would die of that itself
# where mpirun is gone, which reads it.
exec >/dev/null 2>&1
trap 'echo USR1 >>"$folder/usr1-$rank"' USR1
trap 'echo TERM >>"$folder/asked-$rank"; $leave' TERM
echo "$$" >"$folder/ready-$rank"
while :; do sleep 0.05; done
