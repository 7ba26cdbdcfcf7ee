#!/usr/bin/env bash
# The examples compile without a warning, under gcc's analyzer and with shadowed names asked for.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
failures=0

if ! command -v gcc >/dev/null; then
    echo "SKIPPED: no gcc"
    exit 0
fi
for file in "$root"/docs/examples/*.c; do
    for level in -O0 -O1; do
        gcc -std=gnu17 -Wall -Wextra -Wshadow -Wconversion -Werror -fanalyzer $level "-I$root/include" \
            -c "$file" -o "$TEST_TMPDIR/object.o" || failures=$((failures + 1))
    done
done
[ "$failures" -eq 0 ]
