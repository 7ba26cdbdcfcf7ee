#!/usr/bin/env bash
# Verifies protocol.pml with spin: the protocol as it is must have no error, each bug that it can be
# given must have one. Where spin is not installed the test says so and passes.
set -u
if ! command -v spin >/dev/null; then
    echo "SKIPPED: no spin"
    exit 0
fi
model=$TEST_SRCDIR/$TEST_WORKSPACE/tests/model/protocol.pml
cd "$TEST_TMPDIR" || exit 1

# errors DEFINES...: the number that spin reports.
errors() {
    spin "$@" -a "$model" >/dev/null &&
        "${CC:-cc}" -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c &&
        ./pan -m100000 >said 2>&1 &&
        sed -n 's/.*errors: \([0-9]*\).*/\1/p' said
}

failures=0
check() {
    local wanted=$1 found
    shift
    found=$(errors "$@")
    if [ "$wanted" = none ] && [ "$found" = 0 ] && ! grep -q 'max search depth too small' said; then
        printf 'no error: %s (%s states)\n' "$*" "$(sed -n 's/^ *\([0-9e+.]*\) states, stored.*/\1/p' said)"
    elif [ "$wanted" = one ] && [ "${found:-0}" -gt 0 ]; then
        printf 'noticed:  %s\n' "$*"
    else
        failures=$((failures + 1))
        printf 'WRONG:    %s: %s errors\n' "$*" "${found:-no answer about}"
        cat said
    fi
}
check none -DSTEPS=4
check none -DSTEPS=6 -DNO_UPGRADER
for bug in NO_VERSION NO_BARRIER WEAK_NOT_GATED NO_PARKING EDGES_BEFORE_GATE; do
    check one "-D$bug"
done
[ "$failures" -eq 0 ]
