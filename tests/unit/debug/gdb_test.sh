#!/usr/bin/env bash
# What tools/gdb/ndarc_gdb.py prints of the handles of a program that has stopped.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
if ! command -v gdb >/dev/null || ! gdb -batch -nx -ex 'python print(1)' 2>/dev/null | grep -q '^1$'; then
    echo "SKIPPED: no gdb with Python"
    exit 0
fi
output=$(gdb -batch -nx -iex 'set auto-load no' -ex "source $root/tools/gdb/ndarc_gdb.py" -ex 'break stop_here' -ex run \
    -ex 'print w' -ex 'print list' -ex 'print closed' -ex 'print epoch' -ex 'print nothing' -ex 'print nd_gdb_storage' \
    -ex 'print (const nd_tensor *)16' -ex 'print w->ndim' "$root/tests/unit/debug/gdb_program" 2>&1)
if ! grep -q 'Breakpoint 1, ' <<<"$output"; then
    echo "SKIPPED: gdb cannot run a program here"
    echo "$output"
    exit 0
fi
failures=0
expect() {
    if ! grep -qE "^\\\$$1 = $2\$" <<<"$output"; then
        echo "print $1 must match: $2"
        failures=$((failures + 1))
    fi
}
address='at 0x[0-9a-f]+'
site='made at [^ ]*gdb_program.c:[0-9]+'
expect 1 "tensor\\(w1\\) f32 \\[128, 64\\] on cpu:0, count 2, in manager epoch, $site, $address"
expect 2 "list, count 1, in manager root, $site, $address"
expect 3 "list, count 1, closed, in manager root, $site, $address"
expect 4 "manager epoch, count 2, $address"
expect 5 "NULL"
expect 6 "storage of 32768 bytes on cpu, count 1, in manager epoch, $site, $address"
expect 7 "0x10 \\(no object: Cannot access memory at address 0x10\\)"
expect 8 "2 '.*'"
[ "$failures" -eq 0 ] || echo "$output"
exit "$failures"
