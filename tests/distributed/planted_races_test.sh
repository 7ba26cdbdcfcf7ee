#!/usr/bin/env bash
# planted_races_test.sh AS_IT_IS PROGRAM...: in a build with the thread sanitizer (--config=tsan) it is silent about the first program and reports a race in
# each of the others, which have one planted. What it reports is a data race of node.c, not an error that follows from wrong numbers.
set -u
[ -n "${TSAN_OPTIONS:-}" ] || { echo "SKIPPED: built without the thread sanitizer"; exit 0; }
failed=0
as_it_is=$1
shift
said=$("$as_it_is" 2>&1) || failed=1
! grep "ThreadSanitizer" <<<"$said" || failed=1
[ "$failed" -eq 0 ] || echo "$said"
for program; do
    reported=0
    for _ in 1 2 3 4 5; do # a rank that is late is ordered behind what the others did before it looked
        said=$(timeout 100 "$program" 2>&1)
        ! grep -q "WARNING: ThreadSanitizer: data race" <<<"$said" || ! grep -q "node.c" <<<"$said" || reported=1
        [ "$reported" -eq 0 ] || break
    done
    if [ "$reported" -eq 1 ]; then
        printf '%-24s %s\n' "${program##*/}" "$(grep -m 1 SUMMARY <<<"$said")"
    else
        echo "${program##*/}: no race is reported"
        echo "$said" | tail -n 20
        failed=1
    fi
done
exit $failed
