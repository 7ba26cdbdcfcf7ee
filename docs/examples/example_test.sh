#!/usr/bin/env bash
# example_test.sh EXPECTED PROGRAM...: each program prints what the documentation says, and nothing is left behind.
set -u
expected=$PWD/$1
shift
failures=0
for program in "$@"; do
    program=$PWD/$program
    # A folder of its own, for the files that it writes.
    folder=$TEST_TMPDIR/$(basename "$program")
    mkdir "$folder" && cd "$folder" || exit 1
    ND_LEAK_CHECK=1 "$program" >printed 2>errors
    status=$?
    cd "$OLDPWD" || exit 1
    if grep -q "needs libpng" "$folder/printed"; then
        echo "SKIPPED: no libpng"
        exit 0
    fi
    diff "$expected" "$folder/printed" && grep -qx "ndarc: no leaks" "$folder/errors" && [ $status -eq 0 ] && continue
    echo "$program ended with $status and said:"
    cat "$folder/errors"
    failures=$((failures + 1))
done
[ $failures -eq 0 ]
