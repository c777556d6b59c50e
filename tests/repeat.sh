#!/bin/sh
# Runs lanes of the tests again and again beside a load of two busy loops for each processor, and lists what failed at
# least once: what passes here does so by no luck.
#
#     tests/repeat.sh N 'LANE...'      make test-repeat N=10 LANES='pid1 nodes' builds what it needs first
#
# target/repeat/NUMBER.log has the output of each run.
set -eu

cd "$(dirname "$0")/.."
logs=target/repeat
rm -rf "$logs"
mkdir -p "$logs"

load=
trap 'kill $load 2>/dev/null' EXIT
trap 'exit 130' INT TERM
for _ in $(seq $((2 * $(nproc)))); do
    sh -c 'while :; do :; done' &
    load="$load $!"
done

broken=
for run in $(seq "$1"); do
    started=$(date +%s)
    make --no-print-directory -k -j -O -o test-build LANES="$2" lanes >"$logs/$run.log" 2>&1 || broken="$broken $run"
    failed=$(grep -c '^test .* \.\.\. .*FAILED' "$logs/$run.log" || :)
    echo "run $run of $1: $(grep -c '^test .* \.\.\. ok' "$logs/$run.log") passed, $failed failed, $(($(date +%s) - started)) s"
done
[ -n "$broken" ] || exit 0
echo "what failed, and in how many runs:"
# A lane that ended without a result of its tests is in no such line.
cat "$logs"/*.log | sed -n 's/^test \(.*\) \.\.\. .*FAILED.*/\1/p' | sort | uniq -c | sort -rn
echo "runs that failed:$broken; their output is in $logs"
exit 1
