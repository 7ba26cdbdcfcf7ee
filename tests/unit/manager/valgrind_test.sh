#!/usr/bin/env bash
# At the end of a program valgrind finds nothing lost, nor possibly lost: whatever the library keeps is reached from its beginning.
set -u
if ! command -v valgrind >/dev/null; then
    echo "SKIPPED: no valgrind"
    exit 0
fi
program=$TEST_SRCDIR/$TEST_WORKSPACE/tests/unit/manager/valgrind_program
if grep -qE '__(asan|tsan|ubsan)_' <(strings -a "$program" 2>/dev/null || cat "$program"); then
    echo "SKIPPED: a sanitizer is linked in"
    exit 0
fi
valgrind --leak-check=full --show-leak-kinds=definite,indirect,possible --errors-for-leak-kinds=definite,indirect,possible \
    --error-exitcode=9 "$program" >"$TEST_TMPDIR/log" 2>&1
status=$?
if [ $status -ne 0 ] || ! grep -q '^0 objects$' "$TEST_TMPDIR/log"; then
    cat "$TEST_TMPDIR/log"
    echo "exit status $status"
    exit 1
fi
