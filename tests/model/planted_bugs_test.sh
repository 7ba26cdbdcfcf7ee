#!/usr/bin/env bash
# planted_bugs_test.sh BUG[:PROGRAM]... --no-races BUG[:PROGRAM]... --harmless CHANGE...
# Fails when the checker finds nothing wrong with a planted bug, or something with a harmless change.
set -u
folder=$TEST_SRCDIR/$TEST_WORKSPACE/tests/model
failures=0
expect=--expect-error
races=
limit=30000
for name; do
    if [ "$name" = --harmless ]; then
        expect=
        races=
        limit=3000
        continue
    fi
    if [ "$name" = --no-races ]; then
        races=$name
        continue
    fi
    program=${name#"${name%%:*}"}
    name=${name%%:*}
    said=$("$folder/$name" --no-trace --limit $limit --samples 100 $races $expect ${program:+"${program#:}"} 2>&1)
    code=$?
    if [ "$code" -ne 0 ]; then
        failures=$((failures + 1))
        printf '%s: %s\n%s\n' "$name" "${expect:+unnoticed}${expect:-must be harmless}" "$said"
    elif [ -n "$expect" ]; then
        printf '%-26s %s\n' "$name" "$(grep -m 1 ERROR <<<"$said" | tr -s ' ')"
    else
        printf '%-26s harmless\n' "$name"
    fi
done
[ "$failures" -eq 0 ]
