#!/usr/bin/env bash
# readme_test.sh README CODE OUTPUT: the README's first C block is CODE, and it shows OUTPUT.
set -eu
awk '/^```c$/ { inside = 1; next } /^```$/ && inside { exit } inside' "$1" >"$TEST_TMPDIR/code"
diff "$2" "$TEST_TMPDIR/code"
while IFS= read -r line; do
    grep -qF -- "$line" "$1" || { echo "README does not show: $line"; exit 1; }
done <"$3"
