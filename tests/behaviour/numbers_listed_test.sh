#!/usr/bin/env bash
# docs/behaviours.md names, for every number, tests that exist, and names every numbered test of the packages whose sources are
# at hand here.
set -u
root=$TEST_SRCDIR/$TEST_WORKSPACE
table=$root/docs/behaviours.md
failures=0

complain() {
    echo "$*"
    failures=$((failures + 1))
}

# row NUMBER: the row must be there, and say a test or why it waits.
row() {
    local found
    found=$(grep -E "^\| $1 \|" "$table") || { complain "$1 has no row"; return; }
    grep -Eq "\`test_|Waits: " <<<"$found" || complain "$1 has neither a test nor a reason"
    # Every test of the row carries its number; one may carry several.
    local carried test
    carried="^test_([BGFC][0-9]+_)*${1:0:1}$(printf %02d "${1:1}")_"
    for test in $(grep -o '`test_[A-Za-z0-9_]*`' <<<"$found" | tr -d '`'); do
        [[ $test =~ $carried ]] || complain "$test stands in the row of $1"
    done
}
for number in $(seq 1 25); do row "B$number"; done
for number in $(seq 1 42) 46; do row "G$number"; done
for number in $(seq 1 36) 38 39 41; do row "F$number"; done
for number in 1 6 7 8 11 12; do row "C$number"; done
for number in $(sed -n 's/^| \([BGFC][0-9]*\) |.*/\1/p' "$table"); do row "$number"; done # what was added later, too

# "FILE TEST" for what the table says, and for what the sources have.
sed -n 's/^| [BGFC][0-9]* | [^|]* | \(.*\) |$/\1/p' "$table" | sed 's/<br>/\n/g' |
    awk -F': ' '{ file = $1; for (n = split($2, tests, /[`, ]+/); n > 0; n--) if (tests[n] ~ /^test_/) print file, tests[n] }' |
    sort >"$TEST_TMPDIR/listed"
for folder in behaviour faults unit/base unit/manager unit/object unit/pressure; do
    for file in "$root/tests/$folder"/*.c; do
        [ -e "$file" ] || complain "no sources of $folder"
        sed -n 's/^static void \(test_[BGF][0-9]*_[A-Za-z0-9_]*\)(.*/\1/p' "$file" | sed "s|^|$folder/$(basename "$file") |"
    done
done | sort >"$TEST_TMPDIR/written"
# Those of the fake runtime that carry a number of CUDA's; what else they carry stands with the host's.
sed -n 's/^static void \(test_C[0-9]*_[A-Za-z0-9_]*\)(.*/cudart\/lifetimes_test.c \1/p' "$root/tests/cudart/lifetimes_test.c" |
    sort - "$TEST_TMPDIR/written" -o "$TEST_TMPDIR/written"
grep -E '^(behaviour|faults|unit/(base|manager|object|pressure))/|^cudart/lifetimes_test.c ' "$TEST_TMPDIR/listed" >"$TEST_TMPDIR/listed_here"
if ! difference=$(diff "$TEST_TMPDIR/listed_here" "$TEST_TMPDIR/written"); then
    complain "only in the table (<), only in the sources (>):"
    grep '^[<>]' <<<"$difference" | head -20
fi
[ "$(wc -l <"$TEST_TMPDIR/written")" -ge 100 ] || complain "found next to no tests"
[ "$failures" -eq 0 ]
