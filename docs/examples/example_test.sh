#!/usr/bin/env bash
# example_test.sh PROGRAM EXPECTED: the program prints what the documentation says, and nothing is left behind.
set -eu
program=$PWD/$1
expected=$PWD/$2
cd "$TEST_TMPDIR" # where files go that it writes
ND_LEAK_CHECK=1 "$program" >printed 2>errors
diff "$expected" printed
grep -qx "ndarc: no leaks" errors
