#!/usr/bin/env bash
# planted_faults_test.sh PROGRAM...: fails when one of them, a test with a planted fault, passes.
set -u
failed=0
for program; do
    if said=$(CMOCKA_TEST_ABORT=1 timeout 100 "$program" 2>&1); then
        echo "${program##*/}: unnoticed"
        failed=1
    else
        printf '%-24s %s\n' "${program##*/}" "$(grep -m 1 -E '^manner|error:|FAILED' <<<"$said")"
    fi
done
exit $failed
