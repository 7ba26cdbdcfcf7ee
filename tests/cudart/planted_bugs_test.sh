#!/usr/bin/env bash
# planted_bugs_test.sh BUG...
# Fails when a test passes with a planted bug.
set -u
folder=$TEST_SRCDIR/$TEST_WORKSPACE/tests/cudart
export ND_CUBLAS=$folder/libcublas.so ND_CUDNN=$folder/libcudnn.so ND_CUFFT=$folder/libcufft.so ND_CUSOLVER=$folder/libcusolver.so ND_CUDART_RACES=1
failures=0
for name; do
    said=$(CMOCKA_TEST_ABORT=1 timeout 60 "$folder/$name" 2>&1)
    code=$?
    if [ "$code" -eq 0 ]; then
        failures=$((failures + 1))
        echo "$name: unnoticed"
    else
        printf '%-26s %s\n' "$name" "$(grep -m 1 -E 'fake CUDA runtime|FAILED|RUN' <<<"$(grep -E 'fake CUDA runtime' <<<"$said"; grep FAILED <<<"$said")")"
    fi
done
[ "$failures" -eq 0 ]
