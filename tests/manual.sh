#!/bin/sh
# Writes all man pages and completions: sh tests/manual.sh PROGRAM DIR
set -e
program=$1 directory=$2
mkdir -p "$directory"
"$program" man > "$directory/rdma-init.1"
# Only the lines of subcommands start with two spaces and a letter, up to the next empty line.
for command in $("$program" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
    "$program" man "$command" > "$directory/rdma-init-$command.1"
done
"$program" completions bash > "$directory/rdma-init.bash"
"$program" completions zsh > "$directory/_rdma-init"
"$program" completions fish > "$directory/rdma-init.fish"
