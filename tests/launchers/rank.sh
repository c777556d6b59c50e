#!/bin/sh
# A rank of mpirun. It records what happens to it in files in FOLDER.
#
#     rank.sh FOLDER [stubborn]
folder=$1
rank=$OMPI_COMM_WORLD_RANK
leave=exit
[ "${2:-}" = stubborn ] && leave=:
# The shell prints a message if a `sleep` was terminated. If no mpirun reads the message, writing it would
# kill the shell.
exec >/dev/null 2>&1
trap 'echo USR1 >>"$folder/usr1-$rank"' USR1
trap 'echo TERM >>"$folder/asked-$rank"; $leave' TERM
echo "$$" >"$folder/ready-$rank"
while :; do sleep 0.05; done
