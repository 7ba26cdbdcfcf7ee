#!/usr/bin/env bash
# semantic_search_test.sh PROGRAM: with a small model, a query of the command line and queries of standard input are answered as
# expected, nothing is left behind, and what cannot be opened is said.
set -eu
program=$PWD/$1
folder=$TEST_SRCDIR/$TEST_WORKSPACE/docs/examples
cd "$folder"
{
    ND_LEAK_CHECK=1 "$program" --model minilm/tiny --query "A man runs!" semantic_search.lines 2>"$TEST_TMPDIR/errors"
    printf 'the dog\nUN\n' | "$program" --model minilm/tiny semantic_search.lines
} >"$TEST_TMPDIR/printed"
diff semantic_search.expected "$TEST_TMPDIR/printed"
grep -qx "ndarc: no leaks" "$TEST_TMPDIR/errors"

fails() { # WORDS ARGUMENTS...
    if "$program" "${@:2}" </dev/null 2>"$TEST_TMPDIR/errors"; then
        echo "does not fail: ${*:2}"
        exit 1
    fi
    grep -qF -- "$1" "$TEST_TMPDIR/errors" || { cat "$TEST_TMPDIR/errors"; exit 1; }
}
fails "tools/get_minilm fetches the model" --model nowhere semantic_search.lines
fails "none.txt: No such file" --model minilm/tiny none.txt
