#!/bin/sh
# Runs fuzzers one after the other: run.sh LIMIT TARGET..., where LIMIT is a time such as 10s or 5m, or a number of
# inputs such as 10000000. Each starts from its kept inputs, and prints how many inputs it tried, and how many each second.
set -eu
cd "$(dirname "$0")/.."

case $1 in
    *m) limit=-max_total_time=$((${1%m} * 60)) ;;
    *s) limit=-max_total_time=${1%s} ;;
    *) limit=-runs=$1 ;;
esac
shift
sh fuzz/build.sh "$@"
work=${CARGO_TARGET_DIR:-target}/fuzz
mkdir -p "$work/found"
TMPDIR=$(mktemp -d /dev/shm/fuzz.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
failed=
for target in "$@"; do
    mkdir -p "$work/corpus/$target"
    # Longer inputs take longer, and find nothing more where each line or message is read by itself.
    case $target in
        elf | facts | ld-so-cache | profile) longest=16384 ;;
        *) longest=4096 ;;
    esac
    if ! "$work/programs/$target" "$limit" "-max_len=$longest" -timeout=10 -rss_limit_mb=2048 \
        -detect_leaks=0 -reload=0 -print_final_stats=1 -artifact_prefix="$work/found/$target-" \
        "$work/corpus/$target" "fuzz/corpus/$target" >"$work/$target.log" 2>&1; then
        failed="$failed $target"
        grep -A12 -E 'panicked|ERROR: libFuzzer' "$work/$target.log" || tail -n 20 "$work/$target.log"
    fi
    final() { sed -n "s/^stat::$1: *//p" "$work/$target.log"; }
    echo "$target: $(final number_of_executed_units) inputs, $(final average_exec_per_sec) each second"
done
test -z "$failed" || { echo "these failed:$failed; their inputs are in $work/found"; exit 1; }
