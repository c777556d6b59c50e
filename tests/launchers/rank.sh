#!/bin/sh
# A rank of mpirun. It writes what happens to it to files in FOLDER.
#
#     rank.sh FOLDER [stubborn]
folder=$1
rank=$OMPI_COMM_WORLD_RANK
leave=exit
[ "${2:-}" = stubborn ] && leave=:
# The shell reports a `sleep` that was terminated. Without an mpirun that reads this report,
# writing it would kill the shell.
exec >/dev/null 2>&1
trap 'echo USR1 >>"$folder/usr1-$rank"' USR1
trap 'echo TERM >>"$folder/asked-$rank"; $leave' TERM
echo "$$" >"$folder/ready-$rank"
while :; do sleep 0.05; done
