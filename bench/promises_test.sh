#!/usr/bin/env bash
# What is promised of the workloads after all of their steps: the accuracy of cnn, the nats per byte of transformer, and of a million
# steps and a million requests that nothing grows. Each claim must be judged and hold.
set -u
workloads=$(realpath "$1")
folder=${TEST_TMPDIR:-$(mktemp -d)}
failures=0

holds() { # CLAIM OPTIONS...
    "$workloads" --no-peer --seconds 100000 "${@:2}" >"$folder/table.txt" 2>&1 || failures=$((failures + 1))
    cat "$folder/table.txt"
    grep -q "HOLDS .*$1" "$folder/table.txt" || { echo "FAILED: no claim \"$1\" holds"; failures=$((failures + 1)); }
}

holds "cnn: accuracy 0\.9[89][0-9]* (at least 0\.98)" --only cnn --gc on
holds "transformer: 1\.[0-9]* nats per byte in the last turn (at most 1\.60)" --only transformer --gc on
holds "long, .*resident bytes after a tenth of the 1,000,000 steps and at the end: .*(at most 2 %)" --long
holds "serve, .*resident bytes after a tenth of the 1,000 steps and at the end: .*(at most 2 %)" --only serve --steps 1000 --gc on

[ "$failures" -eq 0 ] && echo "passed"
exit "$failures"
