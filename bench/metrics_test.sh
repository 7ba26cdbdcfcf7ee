#!/usr/bin/env bash
# Benchmarks write the figures they promise, under their names, as JSON: numbers above zero. What they are is not looked at. And
# they draw charts.
#
# metrics_test.sh REFCOUNT DISPATCH COLLECTOR TENSOR_BYTES
set -u
refcount=$1
dispatch=$2
collector=$3
tensor_bytes=$4
failures=0

# expect PROGRAM KEY...
expect() {
    local program=$1 file=$TEST_TMPDIR/figures.json
    shift
    if ! "$program" --json "$file" >"$TEST_TMPDIR/output"; then
        cat "$TEST_TMPDIR/output"
        echo "$program failed"
        failures=$((failures + 1))
        return
    fi
    python3 - "$file" "$(basename "$program")" "$@" <<'END' || failures=$((failures + 1))
import json, sys
figures = json.load(open(sys.argv[1]))
wrong = [key for key in sys.argv[3:] if not figures["metrics"].get(key, 0) > 0]
if figures["bench"] != sys.argv[2]:
    wrong.append("bench")
if not figures["machine"]["cores"] >= 1:
    wrong.append("machine")
if wrong:
    sys.exit("%s: missing or not above zero: %s" % (sys.argv[2], ", ".join(wrong)))
END
}

expect "$refcount" T1_ns T1_single_thread_ns T1_locked_pair_ns
expect "$dispatch" T2_ns T3_ns T4_ns T5_ns T6_ns \
    T2_second_thread_ns T3_second_thread_ns T4_second_thread_ns T5_second_thread_ns T6_second_thread_ns
expect "$collector" T11_ring2_ns_per_object T11_ring100_ns_per_object T11_ring1m_ns_per_object T12_ns T13_ns_1k_model T13_ns_1m_model \
    T14e_ratio_1 T14e_ratio_1000 T14e_ratio_1_threads T17_ms_1e5 T17_ms_1e6 T17_ms_5e6
expect "$tensor_bytes" T18_bytes_16_floats T18_bytes_4096_floats
if command -v gnuplot >/dev/null; then
    for ending in png svg; do
        "$refcount" --plot "$TEST_TMPDIR/chart.$ending" >/dev/null && [ "$(wc -c <"$TEST_TMPDIR/chart.$ending")" -gt 5000 ] || {
            echo "no chart.$ending"
            failures=$((failures + 1))
        }
    done
else
    echo "SKIPPED: gnuplot is not installed, no chart drawn"
fi
refused() { # WORDS COMMAND...: before anything is measured
    "${@:2}" >"$TEST_TMPDIR/output" 2>&1
    if [ $? -ne 2 ] || ! grep -q "$1" "$TEST_TMPDIR/output" || grep -q ' ratio ' "$TEST_TMPDIR/output"; then
        echo "not refused: ${*:2}: $(cat "$TEST_TMPDIR/output")"
        failures=$((failures + 1))
    fi
}
refused "png or .svg" "$dispatch" --plot "$TEST_TMPDIR/chart.txt"
refused "needs gnuplot" env PATH=/nowhere "$dispatch" --plot "$TEST_TMPDIR/chart.png"
refused "cannot write" "$dispatch" --json /does/not/exist/figures.json
[ "$failures" -eq 0 ]
