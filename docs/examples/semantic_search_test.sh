#!/usr/bin/env bash
# semantic_search_test.sh PROGRAM: with a small model, a query of the command line and queries of standard input are answered as
# expected, lines have their numbers however long those before them are, nothing is left behind, and what cannot be opened is said.
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

# Lines of 4,094 bytes and more, one of several MiB, with \r\n, with a zero, and without an end.
python3 - "$TEST_TMPDIR/long" <<'END'
import sys

lines = [b"a" * length + b"\n" for length in (4094, 4095, 4096, 8191, 3 << 20)]
open(sys.argv[1], "wb").write(b"".join(lines) + b"un\0un\r\n" + b"b" * 4096 + b"\r\nA man runs and runs.")
END
"$program" --model minilm/tiny --query "A man runs and runs." "$TEST_TMPDIR/long" >"$TEST_TMPDIR/printed"
head -1 "$TEST_TMPDIR/printed" | grep -qx "1.00 .*/long:8: A man runs and runs." || { cut -c 1-80 "$TEST_TMPDIR/printed"; exit 1; }
"$program" --model minilm/tiny --query "un" "$TEST_TMPDIR/long" >"$TEST_TMPDIR/printed"
head -1 "$TEST_TMPDIR/printed" | tr -d '\0' | grep -q "/long:6: un" || { cut -c 1-80 "$TEST_TMPDIR/printed"; exit 1; }

fails() { # WORDS ARGUMENTS...
    if "$program" "${@:2}" </dev/null 2>"$TEST_TMPDIR/errors"; then
        echo "does not fail: ${*:2}"
        exit 1
    fi
    grep -qF -- "$1" "$TEST_TMPDIR/errors" || { cat "$TEST_TMPDIR/errors"; exit 1; }
}
fails "tools/get_minilm fetches the model" --model nowhere semantic_search.lines
fails "none.txt: No such file" --model minilm/tiny none.txt
fails "$TEST_TMPDIR: Is a directory" --model minilm/tiny --query un "$TEST_TMPDIR"
