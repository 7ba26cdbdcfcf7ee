#!/usr/bin/env bash
# Lets libFuzzer look for ND_FUZZ_SECONDS (30), from the corpus on; what stops the harness is shown as text.
#   fuzz_test.sh FUZZER REPLAY TEXT...
set -u
fuzzer=$1
replay=$2
shift 2
work=${TEST_TMPDIR:-$(mktemp -d)}
mkdir -p "$work/seeds" "$work/found"
# A race stops the harness, so that libFuzzer keeps the input.
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
"$replay" --pack "$work/seeds" "$@" || exit 1
"$fuzzer" -max_total_time="${ND_FUZZ_SECONDS:-30}" -seed="${ND_FUZZ_SEED:-1}" -max_len=2000 -timeout=120 -rss_limit_mb=4096 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$work/" "$work/found" "$work/seeds" >"$work/log" 2>&1
status=$?
for input in "$work"/crash-* "$work"/leak-* "$work"/timeout-* "$work"/oom-*; do
    [ -e "$input" ] || continue
    status=1
    echo "this input stops it:"
    "$replay" --show "$input"
done
tail -n 60 "$work/log"
exit $status
