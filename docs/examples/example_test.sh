#!/usr/bin/env bash
# example_test.sh PROGRAM EXPECTED: the program prints what the documentation says, and nothing is left behind.
set -eu
ND_LEAK_CHECK=1 "$1" >"$TEST_TMPDIR/printed" 2>"$TEST_TMPDIR/errors"
diff "$2" "$TEST_TMPDIR/printed"
grep -qx "ndarc: no leaks" "$TEST_TMPDIR/errors"
