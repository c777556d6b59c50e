#!/bin/sh
# Runs fuzzers one after the other: run.sh TIME TARGET..., where TIME is such as 10s or 5m. Each starts from its kept
# inputs, and prints how many inputs it tried.
set -eu
cd "$(dirname "$0")/.."

case $1 in
    *m) seconds=$((${1%m} * 60)) ;;
    *) seconds=${1%s} ;;
esac
shift
program=$(sh fuzz/build.sh)
work=${CARGO_TARGET_DIR:-target}/fuzz
mkdir -p "$work/found"
TMPDIR=$(mktemp -d /dev/shm/fuzz.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
failed=
for target in "$@"; do
    mkdir -p "$work/corpus/$target"
    if ! FUZZ_TARGET=$target "$program" -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$work/found/$target-" \
        "$work/corpus/$target" "fuzz/corpus/$target" >"$work/$target.log" 2>&1; then
        failed="$failed $target"
        grep -A12 -E 'panicked|ERROR: libFuzzer' "$work/$target.log" || tail -n 20 "$work/$target.log"
    fi
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log") inputs"
done
test -z "$failed" || { echo "these failed:$failed; their inputs are in $work/found"; exit 1; }
