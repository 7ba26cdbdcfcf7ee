#!/usr/bin/env bash
# races.sh: that the thread sanitizer sees races of lib/distributed. Takes one lock at a time out of a function (the compiler does, so
# the tree is not changed), runs a test that is free of reports without that, and fails when no data race is reported.
set -eu
cd "$(dirname "$0")/../.."
file=lib/distributed/buckets.c test=//tests/distributed:parallel_test_of_2
failed=0

# The line of the first call of a function of pthread's in a function of the file.
line_in() { # FUNCTION CALL
    awk -v begin="$1(" -v call="$2(" 'index($0, begin) && /^[a-z].*\{$/ {inside = 1} inside && index($0, call) {print NR; exit}' "$file"
}

for function in arrive wait_until; do
    options=()
    for call in pthread_mutex_lock pthread_mutex_unlock; do
        line=$(line_in "$function" "$call")
        options+=("--per_file_copt=lib/distributed/buckets[.]c@-D$call(m)=(__LINE__==$line?0:($call)(m))")
    done
    if ./bazelw test --config=tsan "${options[@]}" --test_output=all "$test" 2>&1 | grep -q "WARNING: ThreadSanitizer: data race"; then
        echo "$function without its lock: reported"
    else
        echo "$function without its lock: NOT reported"
        failed=1
    fi
done
exit $failed
